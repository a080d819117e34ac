"""What people read of an alert: annotations in Prometheus's template language."""

from __future__ import annotations

from stepwatch.alerts.table import Alert
from stepwatch.annotations import dashboard_url, runbook_url, silence_url
from stepwatch.config.models import Config
from stepwatch.deployment import Deployment

MOST_CHARACTERS = 400
MOST_QUERIES = 4


def annotations(alert: Alert, severity: str, config: Config, deployment: Deployment) -> dict[str, str]:
    """Return the annotations of an alert."""
    return {
        "summary": alert.summary,
        "description": description(alert, severity),
        "action": alert.action,
        "runbook_url": runbook_url(config, alert.name),
        "dashboard_url": dashboard_url(config, deployment, alert.about),
        "silence_url": silence_url(config, alert.name, alert.about),
    }


def description(alert: Alert, severity: str) -> str:
    """Return the value, its limit, the step, and what else fires for the run."""
    number = f'{{{{printf "{alert.style}"'
    return (
        '{{$r := printf "%q" $labels.run}}'
        f"""{{{{range query (print "rl_limit_passed{{rule='{alert.name}-{severity}',run=" $r "}}")}}}}"""
        f"{{{{.Labels.measured}}}} {number} $value}}}}{alert.unit},"
        f" limit {number} .Value}}}}{alert.unit} {{{{.Labels.basis}}}}{{{{end}}}}"
        '{{range query (print "max(rl_step{run=" $r "})")}}; step {{.Value}}{{end}}.'
        """ Firing:{{range query (print "ALERTS{alertstate='firing',run=" $r "}")}} {{.Labels.alertname}}{{end}}"""
    )

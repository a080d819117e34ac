"""What people read of an alert: annotations in Prometheus's template language."""

from __future__ import annotations

from stepwatch.alerts.table import Alert
from stepwatch.annotations import dashboard_url, runbook_url, silence_url
from stepwatch.config.models import Config
from stepwatch.deployment import Deployment

PASSED = "rl_limit_passed"
"""The limit of the first way in which an alert holds, with what was measured and what it follows from."""

MOST_CHARACTERS = 400
MOST_QUERIES = 4


def message(alert: Alert, severity: str, config: Config, deployment: Deployment) -> dict[str, str]:
    """Return the annotations of an alert."""
    return {
        "summary": alert.summary,
        "description": description(alert, severity),
        "action": alert.action,
        "runbook_url": runbook_url(config, alert.name),
        "dashboard_url": dashboard_url(config, deployment, alert.subject),
        "silence_url": silence_url(config, alert.name, alert.subject),
    }


def description(alert: Alert, severity: str) -> str:
    """Return the measured value, the limit of the first way that holds, and what else is known."""
    who, said = alert.where, "".join(_each(alert, fact.query, fact.text) for fact in alert.facts)
    if alert.labels == ("run",):
        who = "{{$r:=$labels.run}}"
    measured = alert.ways[0].measured
    if alert.style:
        matchers = ",".join(f"{label}=%q" for label in alert.labels)
        measured = _each(
            alert,
            f"{PASSED}{{rule='{alert.name}-{severity}',{matchers}}}",
            f"{{{{.Labels.measured}}}} {_number(alert, '$value')},"
            f" limit {_number(alert, '.Value')}{{{{.Labels.basis}}}}",
        )
    if alert.others:
        others = f"ALERTS{{alertname!='{alert.name}',run=%q}}"
        said += _each(alert, others, "; {{.Labels.alertname}} fires")
    return f"{who}{measured}{said}."


def _each(alert: Alert, query: str, text: str) -> str:
    """Return a template that writes a text for each series that a query finds."""
    labels = "$r" if alert.labels == ("run",) else " ".join(f"$labels.{label}" for label in alert.labels)
    return f'{{{{range printf "{query}" {labels}|query}}}}{text}{{{{end}}}}'


def _number(alert: Alert, value: str) -> str:
    style = f'printf "{alert.style}"' if alert.style.startswith("%") else alert.style
    return f"{{{{{style} {value}}}}}"

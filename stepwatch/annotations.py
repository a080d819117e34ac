"""Parts of alert annotations, in Prometheus's template language."""

from __future__ import annotations

from stepwatch.config.models import Config
from stepwatch.promql import THIS, THIS_RUN

RUN = "{{ $labels.run }}"

STATE_ALERTS = "Run(Failed|Vanished|Stopped|Finished)"


def value(expression: str, style: str = "%.3g") -> str:
    """The value of an expression about the alert's run, or ``?`` while it has none.

    ``expression`` names the run by ``promql.THIS_RUN``; ``style`` is a ``printf`` verb.
    """
    asked = f"printf `{expression}` $labels.run | query"
    return f"{{{{ with {asked} }}}}{{{{ . | first | value | printf `{style}` }}}}{{{{ else }}}}?{{{{ end }}}}"


def step() -> str:
    """The step that the alert's run is at."""
    return "step " + value(THIS.metric("rl_step"), "%.0f")


def names(expression: str, label: str) -> str:
    """The values of a label in the result of an expression about the alert's run."""
    return _listed(f"printf `{expression}` $labels.run | query", label)


def also(alert: str) -> str:
    """What else fires for the run, as a sentence; empty if nothing does."""
    others = f'ALERTS{{alertstate="firing",{THIS_RUN},alertname!~"{alert}|{STATE_ALERTS}"}}'
    asked = f"printf `sort(group by (alertname) ({others}))` $labels.run | query"
    return f"{{{{ with {asked} }}}} Also firing: {_listed('.', 'alertname')}.{{{{ end }}}}"


def _listed(samples: str, label: str) -> str:
    comma = "{{ if $i }}, {{ end }}"
    return f"{{{{ range $i, $x := {samples} }}}}{comma}{{{{ $x.Labels.{label} }}}}{{{{ end }}}}"


def runbook_url(config: Config, alert: str) -> str:
    """The runbook's heading of the alert."""
    return f"{config.links.runbook}#{alert.lower()}"


def dashboard_url(config: Config, *, about_run: bool) -> str:
    """The dashboard that shows why."""
    grafana = config.link("grafana")
    if about_run:
        return f"{grafana}/d/stepwatch-training?var-run={{{{ $labels.run | urlquery }}}}"
    return f"{grafana}/d/stepwatch-runs"


def silence_url(config: Config, alert: str, *, about_run: bool) -> str:
    """Alertmanager's form for a new silence, filled in for this alert of this run."""
    form = f"{config.link('alertmanager')}/#/silences/new?filter="
    if about_run:
        return form + f'{{{{ printf `{{alertname="{alert}",run=%q}}` $labels.run | urlquery }}}}'
    return form + f'{{{{ `{{alertname="{alert}"}}` | urlquery }}}}'

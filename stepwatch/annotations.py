"""Parts of alert annotations, in Prometheus's template language."""

from __future__ import annotations

from stepwatch.config.models import Config
from stepwatch.promql import THIS, THIS_RUN

IN_A_URL = r"urlquery | reReplaceAll `\+` `%20`"
"""Escaped for a query; the pages that read it take a plus for a plus, not for a space."""

STATE_ALERTS = "Run(Failed|Vanished|Stopped|Finished)"


def value(expression: str, style: str = "%.3g") -> str:
    """The value of an expression about the alert's run, or ``?`` while it has none.

    ``expression`` names the run by ``promql.THIS_RUN``; ``style`` is a ``printf`` verb.
    """
    return _value(expression, f"printf `{style}`")


def share(expression: str) -> str:
    """A ratio, in percent."""
    return value(f"100 * ({expression})") + " %"


def duration(expression: str) -> str:
    """A number of seconds, in words such as 17m 15s."""
    return _value(expression, "humanizeDuration")


def given(expression: str, text: str) -> str:
    """The text, if the expression has a value: not every trainer logs everything."""
    return f"{{{{ if {_asked(expression)} }}}}{text}{{{{ end }}}}"


def either(expression: str, text: str, otherwise: str) -> str:
    """One text if the expression has a value, another if it has none."""
    return f"{{{{ if {_asked(expression)} }}}}{text}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def _value(expression: str, style: str) -> str:
    shown = f"{{{{ . | first | value | {style} }}}}"
    return f"{{{{ with {_asked(expression)} }}}}{shown}{{{{ else }}}}?{{{{ end }}}}"


def _asked(expression: str) -> str:
    return f"printf `{expression}` $labels.run | query"


def step() -> str:
    """The step that the alert's run is at."""
    return "step " + value(THIS.metric("rl_step"), "%.0f")


def names(expression: str, label: str) -> str:
    """The values of a label in the result of an expression about the alert's run."""
    return _listed(_asked(expression), label)


def also(alert: str) -> str:
    """What else fires for the run, as a sentence; empty if nothing does."""
    others = f'ALERTS{{alertstate="firing",{THIS_RUN},alertname!~"{alert}|{STATE_ALERTS}"}}'
    asked = _asked(f"sort(group by (alertname) ({others}))")
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
        return f"{grafana}/d/stepwatch-training?var-run={{{{ $labels.run | {IN_A_URL} }}}}"
    return f"{grafana}/d/stepwatch-runs"


def silence_url(config: Config, alert: str, *, about_run: bool) -> str:
    """Alertmanager's form for a new silence, filled in for this alert of this run."""
    form = f"{config.link('alertmanager')}/#/silences/new?filter="
    if about_run:
        return form + f'{{{{ printf `{{alertname="{alert}",run=%q}}` $labels.run | {IN_A_URL} }}}}'
    return form + f'{{{{ `{{alertname="{alert}"}}` | {IN_A_URL} }}}}'

"""The annotations of alerts, in Prometheus' template language.

A description of anything but a run has the subject, the measured value, its limit, and for how long. A limit
that is one number for every condition is written as text; otherwise the description queries the recorded
limit of the condition that held (``LIMIT``). For a run it finds that condition first: each but the last is
evaluated for the run. The meaning of a driver's code is recorded as well (``CODE_INFO``): templates
stay short enough to read on Prometheus' own pages, and only texts depend on a recording rule. What to do
first is a separate annotation, ``action``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from stepwatch.alerts.alert import BYTES, DURATION, RATIO, WHOLE, Alert, Codes
from stepwatch.alerts.promql import number
from stepwatch.alerts.table import FACTS
from stepwatch.config.deployment import Deployment
from stepwatch.config.models import Config
from stepwatch.languages import Catalogue, catalogue
from stepwatch.rules.subjects import RUN, SUBJECTS, Subject, View
from stepwatch.schema.failures import CLASSES
from stepwatch.schema.scalars import Duration

LIMIT = "rl_limit"
"""The limit of an alert, by ``alert``, ``severity`` and ``condition``.

About runs: what the alert compares with, for each run and condition. About all else: the limit of the first
condition that holds, while it does; ``condition`` says what is measured, ``basis`` its unit and baseline.
"""

CODE_INFO = "alert_code_info"
"""The meaning of a code, and the first action, as labels; always 1."""

TEXT_INFO = "alert_text_info"
"""The first action of an alert on runs, and its runbook texts, as labels; always 1."""

FIRING = "rl_firing"
"""The alerts that fire for a run, by ``name``, each once regardless of severity; always 1."""

_IN_A_URL = r"urlquery | reReplaceAll `\+` `%20`"
"""Escaped for a query; the pages that read it take a plus for a plus, not for a space."""

_GPU = "or $labels.uuid $labels.gpu `N`"
"""By its UUID if known: numbers change when a GPU is lost."""


FAILURES = tuple(each.text for each in CLASSES.values())
"""The causes of a run's end, besides those of `_in_words`."""


class Link(NamedTuple):
    """A condition of an alert on runs: where it holds, its limit (for the run ``%[1]s``), and its words."""

    held: str
    limit: str
    measured: str
    baseline: str


class Comparison(NamedTuple):
    """The words of each condition; the limit and what it follows from, unless they are ``recorded``."""

    measured: tuple[str, ...]
    recorded: bool
    limit: float = 0
    baseline: str = ""
    links: tuple[Link, ...] = ()


def message(
    alert: Alert, severity: str, comparison: Comparison, wait: str, *, config: Config, deployment: Deployment
) -> dict[str, str]:
    """Return the annotations of an alert; ``wait`` is how long its condition must hold."""
    subject, translate = SUBJECTS[alert.subject], catalogue(config.language)
    action = alert.action.replace("{gpu}", f"{{{{{_GPU}}}}}")
    if alert.subject == "run":
        description = _about_run(alert, comparison, translate)
        if config.several_clusters:
            # Of a run that an agent reads: the logs and processes that `action` speaks of are there.
            read_on = "group by (node) (last_over_time(rl_run_state{node!='',%s}[10m]))"
            description = _RUN + _each_of_run(read_on, translate("on {{.Labels.node}}: ")) + description
        else:
            description = _RUN + description
    else:
        if alert.codes:
            compared, action = _coded(alert, alert.codes, subject, action, translate)
        else:
            compared = _compared(alert, severity, comparison, subject, translate)
        who = translate(subject.who)
        if wait:
            description = translate("{who}: {compared}, for {wait}.", who=who, compared=compared, wait=wait)
        else:
            description = translate("{who}: {compared}.", who=who, compared=compared)
    return {
        "summary": alert.summary,
        "description": description,
        "action": action,
        "runbook_url": _runbook_of(config, alert),
        "dashboard_url": dashboard_url(config, deployment, alert.subject),
    }


def runbook_url(config: Config, alert: str) -> str:
    """Return the address of the runbook's entry on an alert."""
    return f"{config.links.runbook}#{alert.lower()}"


def _runbook_of(config: Config, alert: Alert) -> str:
    return alert.runbook or ("" if alert in config.table.own else runbook_url(config, alert.name))


def has_grafana(config: Config, deployment: Deployment) -> bool:
    """Whether there is a Grafana that links can lead to: the stack's own, or one that config.yaml names."""
    return config.links.grafana is not None or deployment.runs("grafana")


def dashboard_url(config: Config, deployment: Deployment, subject: str) -> str:
    """Return the address of the dashboard that shows why; without Grafana, of the run exporter's page."""
    shown = SUBJECTS[subject]
    if not has_grafana(config, deployment):
        # On a hub two clusters may have a run of one name.
        cluster = f"{{{{with $labels.cluster}}}}?cluster={{{{. | {_IN_A_URL}}}}}{{{{end}}}}"
        run = f"run/{_escaped(RUN.label)}{cluster if config.several_clusters else ''}"
        return f"{config.link('exporter')}/{run if shown.view == RUN else ''}"
    page = _page(config, shown.view)
    if shown.view != RUN and RUN.label in shown.identity:
        page = f"{{{{if $labels.{RUN.label}}}}}{_page(config, RUN)}{{{{else}}}}{page}{{{{end}}}}"
    return f"{config.link('grafana')}/d/{page}"


def _page(config: Config, view: View) -> str:
    """Return a dashboard with what it shows of an alert."""
    if not view.variable:
        return view.dashboard
    since = _RUN + _each_of_run(_RUN_START, '&from={{printf "%.0f" .Value}}&to=now') if view == RUN else ""
    return f"{view.dashboard}?var-{view.variable}={_escaped(view.label)}{_var_cluster(config)}{since}"


def _escaped(label: str) -> str:
    return f"{{{{$labels.{label} | {_IN_A_URL}}}}}"


def _var_cluster(config: Config) -> str:
    """Return the part of a link that chooses the cluster; empty where dashboards have no choice.

    The Grafana of a hub sees the label of series, be it empty. Prometheus' own (`external_labels`) is only
    on what it hands on: a central Grafana sees it, and ours ignores the variable.
    """
    if config.several_clusters:
        return f"&var-cluster={_escaped('cluster')}"
    if "cluster" in config.external_labels:
        return f"&var-cluster={{{{or $labels.cluster $externalLabels.cluster | {_IN_A_URL}}}}}"
    return ""


_RUN_START = "1000*max(rl_run_start_timestamp_seconds{%s})"
"""In milliseconds. Messages begin no earlier, by the link that the rule makes of it."""

_RUN = '{{$r:=printf "run=%q,cluster=%q" $labels.run $labels.cluster}}'


def _about_run(alert: Alert, comparison: Comparison, translate: Catalogue) -> str:
    """Return the measured value, the limit of the first condition that holds, and the other facts."""
    facts = (FACTS[name] for name in alert.facts)
    said = "".join(_each_of_run(fact.query, _in_words(translate(fact.text), translate)) for fact in facts)
    measured = comparison.measured[0]
    if comparison.recorded:
        *links, last = comparison.links
        measured = _link(alert, last, translate)
        for link in reversed(links):
            held = f"{{{{with printf `{_on_a_line(link.held)}` $r|query}}}}"
            measured = f"{held}{_link(alert, link, translate)}{{{{else}}}}{measured}{{{{end}}}}"
    if alert.others:
        fires = translate("; {{.Labels.name}} fires")
        said += _each_of_run(f"{FIRING}{{name!='{alert.name}',%s}}", fires)
    return translate("{measured}{facts}.", measured=measured, facts=said)


def _each_of_run(query: str, text: str) -> str:
    """Return a text for each series that a query about the run finds, ``%s`` in which selects the run."""
    return f'{{{{range printf "{query}" $r|query}}}}{text}{{{{end}}}}'


def _in_words(text: str, translate: Catalogue) -> str:
    """Return a text with the cause that a metric has in English, such as `CUDA out of memory`, translated."""
    causes = {
        r"^retry (\d+) of (\d+) after ": translate("retry $1 of $2 after "),
        r"^stopped by (\S+)": translate("stopped by $1"),
        r"^killed by (\S+)": translate("killed by $1"),
        r"^wrapper killed$": translate("wrapper killed"),
        r"^exit code (\d+)$": translate("exit code $1"),
        # The longer first: one is the end of another.
        **{rf"\b{each}$": translate(each) for each in sorted(FAILURES, key=len, reverse=True)},
    }
    own = {found: said for found, said in causes.items() if translate.texts}  # English needs no translation
    chain = "".join(f" | reReplaceAll `{found}` `{said}`" for found, said in own.items())
    return text.replace("{{.Labels.cause}}", f"{{{{.Labels.cause{chain}}}}}")


def _link(alert: Alert, link: Link, translate: Catalogue) -> str:
    """Return what a condition measured, and its limit."""
    limit = f"{{{{range printf `{link.limit}` $r|query}}}}{_shown(alert, '.Value')}{{{{end}}}}"
    baseline = in_brackets(translate, link.baseline)
    return _with_limit(
        translate, link.measured, _shown(alert, "$value"), f"{limit}{alert.shown_unit}{baseline}"
    )


def _on_a_line(promql: str) -> str:
    return re.sub(r"\s+", " ", promql).replace("( ", "(").replace(" )", ")")


def in_brackets(translate: Catalogue, baseline: str) -> str:
    """Return the baseline of a limit, in brackets; empty for none."""
    return baseline and translate(" ({baseline})", baseline=baseline)


def _with_limit(translate: Catalogue, measured: str, value: str, limit: str) -> str:
    return translate("{measured} {value}, limit {limit}", measured=measured, value=value, limit=limit)


def _compared(
    alert: Alert, severity: str, comparison: Comparison, subject: Subject, translate: Catalogue
) -> str:
    """Return what was measured, and its limit."""

    def with_limit(measured: str, limit: str) -> str:
        value = f"{_shown(alert, '$value')}{alert.shown_unit}"
        return _with_limit(translate, measured, value, limit) if alert.verb else measured

    if not comparison.recorded:
        baseline = in_brackets(translate, comparison.baseline)
        limit = f"{_written(alert.verb, comparison.limit)}{alert.shown_unit}{baseline}"
        return with_limit(comparison.measured[0], limit)
    # A count is whole, its limit need not be.
    of = "{{.Value}}" if alert.verb == WHOLE else _shown(alert, ".Value")
    basis = "{{.Labels.basis}}" if alert.shown_unit or any(each.baseline for each in alert.conditions) else ""
    labels = subject.unique or subject.identity
    asked = f"{LIMIT}{{alert='{alert.name}',severity='{severity}',{_matchers(labels)}}}"
    without = "{{$value}}" if alert.verb else translate(" or ").join(comparison.measured)
    found = with_limit("{{.Labels.condition}}", f"{of}{basis}")
    return f"{_range(asked, _arguments(labels))}{found}{{{{else}}}}{without}{{{{end}}}}"


def _coded(
    alert: Alert, codes: Codes, subject: Subject, fallback: str, translate: Catalogue
) -> tuple[str, str]:
    """Return what was measured, with the code and its meaning, and what to do first by the code."""
    code = "$value" if codes.by_value else f"$labels.{codes.label}"
    if codes.source:
        found = codes.source.format(_matchers(subject.identity))
        query, arguments = f"{CODE_INFO} and on({codes.label}) {found}", _arguments(subject.identity)
    else:
        verb = "'%.0f'" if codes.by_value else "%q"
        query, arguments = f"{CODE_INFO}{{{codes.label}={verb}}}", code
    measured = alert.conditions[0].measured.format(f"{{{{{code}}}}}")
    said = " ".join(filter(None, (measured, _shown(alert, "$value"))))
    text = f'{{{{.|first|label "action"|reReplaceAll "{{gpu}}" ({_GPU})}}}}'
    meaning = translate(" ({meaning})", meaning="{{.Labels.meaning}}")
    return (
        f"{said}{_range(query, arguments)}{meaning}{{{{end}}}}",
        f'{{{{with query (printf "{query}" {arguments})}}}}{text}{{{{else}}}}{fallback}{{{{end}}}}',
    )


def _matchers(labels: tuple[str, ...]) -> str:
    """Return matchers for the labels of an alert, to be filled by ``printf`` with ``_arguments``."""
    return ",".join(f"{name}=%q" for name in labels)


def _arguments(labels: tuple[str, ...]) -> str:
    return " ".join(f"$labels.{name}" for name in labels)


def _range(expression: str, arguments: str) -> str:
    """Return the start of a template over the results of a query."""
    return f'{{{{range query (printf "{expression}" {arguments})}}}}'


def _shown(alert: Alert, value: str) -> str:
    """Return a value in a template, as the alert writes its numbers."""
    if not alert.verb:
        return ""
    style = f'printf "{alert.verb}" {value}' if alert.verb.startswith("%") else f"{value}|{alert.verb}"
    return f"{{{{{style}}}}}"


def _written(style: str, value: float) -> str:
    """Return a number as a template with this style writes it."""
    if style == RATIO:
        return f"{100 * value:.4g}%"
    if style == DURATION:
        return str(Duration(round(1000 * value)))
    if style == BYTES:
        power = min(int(math.log(value, 1024)), 4) if value >= 1 else 0
        return f"{value / 1024**power:.4g}{('', 'ki', 'Mi', 'Gi', 'Ti')[power]}"
    return number(value)


_ENTRY = re.compile(r"^### (\w+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_MARKUP = re.compile(r"`|\*\*|\[([^]]*)\]\([^)]*\)")


class Entry(NamedTuple):
    """What an alert means, its usual causes, and what to do: each a paragraph, without markup."""

    meaning: str
    causes: str
    mitigation: str


_BEGINS = Entry("**Meaning.** ", "Known causes: ", "**Mitigation.** ")


def entries(page: Path) -> Mapping[str, Entry]:
    """Return the runbook's entries by alert or pattern; what one lacks is empty. Raises ``OSError``."""
    text = page.read_text(encoding="utf-8")
    return {
        name: Entry(*(_paragraph(body, begin) for begin in _BEGINS)) for name, body in _ENTRY.findall(text)
    }


def _paragraph(body: str, begin: str) -> str:
    found = re.search(rf"^{re.escape(begin)}(.+)$", body, re.MULTILINE)
    return _MARKUP.sub(lambda part: part[1] or "", found[1]).strip() if found else ""

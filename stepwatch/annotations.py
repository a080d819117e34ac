"""Parts of alert annotations, in Prometheus's template language."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stepwatch.config.models import Config
from stepwatch.config.quantities import Duration
from stepwatch.deployment import Deployment
from stepwatch.promql import (
    SUFFERS_NOISES,
    THIS,
    THIS_GPU,
    THIS_RUN,
    TOLD_FOR,
    number,
    percent,
    seconds,
)
from stepwatch.recovery import ACTIONS, RESET
from stepwatch.recovery import UNKNOWN as UNKNOWN_ACTION
from stepwatch.xid import UNKNOWN, XIDS

IN_A_URL = r"urlquery | reReplaceAll `\+` `%20`"
"""Escaped for a query; the pages that read it take a plus for a plus, not for a space."""

_BYTES = "humanize1024 | printf `%sB`"

STATE_ALERTS = "Run(Failed|Vanished|Stopped|Finished)"


class Subject(NamedTuple):
    """What alerts are about: the labels that tell one from another, and the dashboard that shows it.

    ``variable`` is the label by which the dashboard is told what to show, if it has such a variable.
    """

    labels: tuple[str, ...]
    dashboard: str
    variable: str | None = None


LOST = {
    "lost": (
        "the driver has lost it",
        f"move its runs, then {RESET}; if that fails, power-cycle the box",
    ),
    "reset_required": (
        "it needs a reset",
        f"stop what runs on it, then {RESET}",
    ),
    "no_permission": (
        "the GPU exporter may not read it",
        "give its container all the GPUs, or its user the right to /dev/nvidia*",
    ),
    "timeout": (
        "the driver does not answer",
        "`dmesg | grep -i xid`; a driver that goes on hanging needs a reboot",
    ),
    "stuck": (
        "the driver hangs so that nothing can be ended that asks it",
        "`dmesg | grep -i xid`; a reboot is likely to be needed",
    ),
    "unknown": (
        "the driver answers with an error that it has no name for",
        "if the exporter is in a container, recreate it; else `dmesg | grep -i xid`",
    ),
    "mig_changed": (
        "it was split anew (MIG), and is not read yet as it is now",
        "wait a minute; then the GPU exporter's log",
    ),
    "crashed": (
        "the driver's library crashes",
        "the GPU exporter's log, and `dmesg | grep -i xid`",
    ),
    "driver_not_loaded": (
        "the driver is no longer loaded",
        "if nobody unloaded it on purpose, `modprobe nvidia` or a reboot",
    ),
    "version_mismatch": (
        "the driver was upgraded while the old one is loaded",
        "reload it or reboot, and recreate the GPU exporter's container",
    ),
}
"""What the reasons of ``gpu_up`` mean, and what to do first."""

SUBJECTS = {
    "run": Subject(("run",), "stepwatch-training", "run"),
    "gpu": Subject(("instance", "gpu"), "stepwatch-gpu", "instance"),
    "box": Subject(("instance",), "stepwatch-gpu", "instance"),
    "server": Subject(("job", "instance"), "stepwatch-runs"),
    "node": Subject(("job", "node"), "stepwatch-runs"),
    "host": Subject(("instance",), "stepwatch-runs"),
    "disk": Subject(("instance", "mountpoint"), "stepwatch-runs"),
    "source": Subject(("name",), "stepwatch-runs"),
    "mount": Subject(("instance", "mount"), "stepwatch-runs"),
    "stack": Subject((), "stepwatch-runs"),
}


def value(expression: str, style: str = "%.3g", about: str = "run") -> str:
    """The value of an expression about the alert's run or GPU, or ``?`` while it has none.

    ``expression`` names it by ``promql.THIS_RUN`` or ``THIS_GPU``; ``style`` is a ``printf`` verb.
    """
    return _value(expression, f"printf `{style}`", about)


def share(expression: str, about: str = "run") -> str:
    """A ratio, in percent."""
    return value(f"100 * ({expression})", about=about) + " %"


def size(expression: str, about: str) -> str:
    """A number of bytes, in units of 1024."""
    return _value(expression, _BYTES, about)


def given_size(expression: str, before: str, about: str) -> str:
    """A number of bytes with a text before it, if the expression has a value."""
    shown = f"{{{{ . | first | value | {_BYTES} }}}}"
    return f"{{{{ with {_asked(expression, about)} }}}}{before}{shown}{{{{ end }}}}"


def duration(expression: str, about: str = "run") -> str:
    """A number of seconds, in words such as 17m 15s."""
    return _value(expression, "humanizeDuration", about)


def given(expression: str, text: str, about: str = "run") -> str:
    """The text, if the expression has a value: not every trainer logs everything."""
    return f"{{{{ if {_asked(expression, about)} }}}}{text}{{{{ end }}}}"


def either(expression: str, text: str, otherwise: str, about: str = "run") -> str:
    """One text if the expression has a value, another if it has none."""
    return f"{{{{ if {_asked(expression, about)} }}}}{text}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def _value(expression: str, style: str, about: str = "run") -> str:
    shown = f"{{{{ . | first | value | {style} }}}}"
    return f"{{{{ with {_asked(expression, about)} }}}}{shown}{{{{ else }}}}?{{{{ end }}}}"


def _asked(expression: str, about: str = "run") -> str:
    if "%[" not in expression:
        return f"query `{expression}`"
    labels = " ".join(f"$labels.{name}" for name in SUBJECTS[about].labels)
    return f"printf `{expression}` {labels} | query"


def step() -> str:
    """The step that the alert's run is at."""
    return "step " + value(THIS.metric("rl_step"), "%.0f")


def reward() -> str:
    """The reward and its best beside another signal, if the trainer logs it."""
    best = THIS.of("best", "reward")
    return given(best, f"; reward {value(THIS.metric('rl_reward'))}, best {value(best)}")


def loss(share: float) -> str:
    """How much of the reward must be lost, as ``promql.suffers`` asks."""
    noises = value(f"{number(SUFFERS_NOISES)} * {THIS.of('noise', 'reward')}")
    return f"{percent(share)} of the reward and {noises} ({number(SUFFERS_NOISES)} times its noise) lost"


def names(expression: str, label: str, about: str = "run") -> str:
    """The values of a label in the result of an expression about the alert's subject."""
    return _listed(_asked(expression, about), label)


def also(alert: str) -> str:
    """What else fires for the run, as a sentence; empty if nothing does."""
    others = f'ALERTS{{alertstate="firing",{THIS_RUN},alertname!~"{alert}|{STATE_ALERTS}"}}'
    asked = _asked(f"sort(group by (alertname) ({others}))")
    return f"{{{{ with {asked} }}}} Also firing: {_listed('.', 'alertname')}.{{{{ end }}}}"


def _listed(samples: str, label: str) -> str:
    comma = "{{ if $i }}, {{ end }}"
    return f"{{{{ range $i, $x := {samples} }}}}{comma}{{{{ $x.Labels.{label} }}}}{{{{ end }}}}"


def gpu() -> str:
    """Which GPU: its number, where, its model while that is known, and its UUID.

    The model is asked for by UUID where there is one: another card may have had the number before.
    """
    info = f'last_over_time(gpu_info{{{THIS_GPU},uuid=~"%[3]s.*"}}[{TOLD_FOR}])'
    model = f"printf `{info}` $labels.instance $labels.gpu $labels.uuid | query"
    return (
        "{{ with $labels.gpu }}GPU {{ . }}{{ else }}A GPU that is not known{{ end }}"
        " at {{ $labels.instance }}"
        f'{{{{ with {model} }}}} ({{{{ . | first | label "name" }}}}){{{{ end }}}}'
        "{{ with $labels.uuid }}, {{ . }}{{ end }}"
    )


def lasting(span: Duration) -> str:
    """What a limit says at its end that must be passed for so long."""
    return f", for {seconds(span.seconds)}."


def lost() -> str:
    """Why a GPU cannot be read, and what to do first."""
    asked = _asked(f"gpu_up{{{THIS_GPU}}} == 0", "gpu")
    known = {reason: _sentence(*words) for reason, words in LOST.items()}
    reason = _one_of("$reason", known, "{{ $reason }}.")
    found = f'{{{{ $reason := . | first | label "reason" }}}}{reason}'
    return f"{{{{ with {asked} }}}}{found}{{{{ else }}}}it could not be read.{{{{ end }}}}"


def xid(codes: Iterable[int]) -> str:
    """What an Xid code, one of these or an unknown one, means, and what to do first."""
    known = {str(code): _sentence(*XIDS[code]) for code in codes if code in XIDS}
    return _one_of("$labels.xid", known, _sentence(*UNKNOWN))


def recovery() -> str:
    """What the driver wants done about a GPU, by the value of the alert, and what to do first."""
    known = {str(action): _sentence(*words) for action, words in ACTIONS.items()}
    return "{{ $action := $value | printf `%.0f` }}" + _one_of("$action", known, _sentence(*UNKNOWN_ACTION))


def reset() -> str:
    """How the alert's GPU is reset."""
    return _of_this_gpu(RESET)


def _sentence(means: str, first: str) -> str:
    return _of_this_gpu(f"{means}. First: {first}.")


def _of_this_gpu(text: str) -> str:
    """By its UUID where that is known: numbers change when a GPU is lost."""
    return text.replace("{gpu}", "{{ or $labels.uuid $labels.gpu }}")


def _one_of(word: str, texts: Mapping[str, str], otherwise: str) -> str:
    """The text of a word of the alert."""
    if not texts:
        return otherwise
    cases = "{{ else ".join(f'if eq {word} "{known}" }}}}{text}' for known, text in texts.items())
    return "{{ " + cases + "{{ else }}" + otherwise + "{{ end }}"


def unseen(text: str) -> str:
    """A label's value for whoever reads the rule: a template that writes nothing, so that no alert has it."""
    return f"{{{{ $runs := {json.dumps(text, ensure_ascii=False)} }}}}"


def runbook_url(config: Config, alert: str) -> str:
    """The runbook's heading of the alert."""
    return f"{config.links.runbook}#{alert.lower()}"


def has_grafana(config: Config, deployment: Deployment) -> bool:
    """Whether there is a Grafana that links can lead to: the stack's own, or one that config.yaml names."""
    return config.links.grafana is not None or deployment.runs("grafana")


def dashboard_url(config: Config, deployment: Deployment, about: str) -> str:
    """The dashboard that shows why; without Grafana, the run exporter's page."""
    subject = SUBJECTS[about]
    name = subject.variable
    label = f"{{{{ $labels.{name} | {IN_A_URL} }}}}"
    if not has_grafana(config, deployment):
        return f"{config.link('exporter')}/{f'run/{label}' if name == 'run' else ''}"
    return f"{config.link('grafana')}/d/{subject.dashboard}{f'?var-{name}={label}' if name else ''}"


def silence_url(config: Config, alert: str, about: str) -> str:
    """Alertmanager's form for a new silence, filled in for this alert of what it is about."""
    names = SUBJECTS[about].labels
    matchers = ",".join([f'alertname="{alert}"', *(f"{name}=%q" for name in names)])
    printed = " ".join(["printf", f"`{{{matchers}}}`", *(f"$labels.{name}" for name in names)])
    text = printed if names else printed.removeprefix("printf ")
    return f"{config.link('alertmanager')}/#/silences/new?filter={{{{ {text} | {IN_A_URL} }}}}"

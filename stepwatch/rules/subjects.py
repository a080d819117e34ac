"""What alerts are about, and the dashboard that shows it, for links in messages and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stepwatch.alerts import identity
from stepwatch.alerts.alert import Alert
from stepwatch.alerts.identity import Labels


class View(NamedTuple):
    """A dashboard of one subject, its variable if it shows one, and the label with the value of that."""

    dashboard: str
    variable: str = ""
    label: str = ""


RUN = View("stepwatch-training", "run", "run")
_RUNS = View("stepwatch-runs")
_GPU = View("stepwatch-gpu", "instance", "instance")
_ENGINE = View("stepwatch-rollout", "server", "instance")
_NODES = View("stepwatch-nodes")
_MACHINE = View("stepwatch-nodes", "machine", "instance")
"""*Nodes* knows a machine by the address of its node_exporter, which is on no other program's alerts."""
_STACK = View("stepwatch-stack")


class Subject(NamedTuple):
    """What alerts are about: the labels that identify one (or its limit), its name, its dashboard."""

    identity: Labels
    who: str
    view: View
    unique: Labels = ()

    @property
    def labels(self) -> Labels:
        """What identifies one within a cluster; links silence by them."""
        return tuple(name for name in self.identity if name not in identity.ALL)


_HERE = "{{$labels.instance}}"
_SERVER = "{{$labels.job}}{{with $labels.instance}} at {{.}}{{end}}"
_DISK = "{{$labels.mountpoint}} at {{$labels.instance}}"
SUBJECTS = {
    "run": Subject(identity.RUN, "{{$labels.run}}", RUN),
    "gpu": Subject(
        identity.GPU,
        "GPU {{or $labels.gpu `unknown`}} at {{$labels.instance}}"
        '{{with query (printf "last_over_time(gpu_info{uuid=%q}[1h])" $labels.uuid)}}'
        ' ({{.|first|label "name"}}){{end}}{{with $labels.uuid}}, {{.}}{{end}}',
        _GPU,
        ("uuid",),
    ),
    "gpu_host": Subject(identity.HOST, _HERE, _GPU),
    "engine": Subject(identity.SERVER, _SERVER, _ENGINE),
    "ray": Subject(identity.SERVER, _SERVER, _NODES),
    "ray_node": Subject(identity.RAY_NODE, "{{$labels.job}} at {{$labels.node}}", _NODES),
    "host": Subject(identity.HOST, _HERE, _MACHINE),
    "disk": Subject(identity.DISK, _DISK, _MACHINE),
    "port": Subject(
        identity.PORT, "{{$labels.device}} port {{$labels.port}} at {{$labels.instance}}", _MACHINE
    ),
    "state_disk": Subject(identity.DISK, _DISK, _NODES),
    "mount": Subject(identity.MOUNT, "{{$labels.mount}} at {{$labels.instance}}", _NODES),
    "clock": Subject(identity.SERVER, _SERVER, _NODES),
    "node": Subject(identity.NODE, "{{$labels.node}}", _NODES),
    "agent": Subject(identity.NODE, "agent{{with $labels.node}} of {{.}}{{end}}", _NODES),
    "log": Subject((*identity.HOST, "log"), "{{$labels.log}} at {{$labels.instance}}", _RUNS),
    "series": Subject((*identity.RUN, "job", "instance"), "{{or $labels.run $labels.instance}}", _STACK),
    "server": Subject(identity.SERVER, _SERVER, _STACK),
    "prometheus": Subject(identity.HOST, _HERE, _STACK),
    "source": Subject(identity.SOURCE, "{{$labels.name}}", _STACK),
    "remote": Subject(identity.REMOTE, "{{$labels.url}} from {{$labels.instance}}", _STACK),
    "receiver": Subject(
        identity.RECEIVER,
        "{{$labels.instance}}{{with $labels.integration}} by {{.}}{{end}}"
        "{{with $labels.receiver_name}} to {{.}}"
        "{{range printf `stepwatch_bridge_error_info{receiver_name=%q}` .|query}} ({{.Labels.text}}){{end}}"
        "{{end}}",
        _STACK,
    ),
    "stack": Subject(identity.ALL, "Prometheus", _STACK),
}
"""What alerts are about, by name.

The model of a GPU is queried by its UUID: another card may have been in its place before.
"""


SHOWN_STATE = "rl_run_shown_state"
"""The state of a run as people see it, as its place in ``SHOWN_STATES``; for dashboards."""

SHOWN_STATES = ("failed", "vanished", "stopped", "stalled", "finished", "running")


class Page(NamedTuple):
    """The dashboard of the alerts whose label matches a pattern of PromQL."""

    label: str
    pattern: str
    view: View


def pages(table: Iterable[Alert]) -> Iterator[Page]:
    """Yield the dashboard of every alert, those of other people's rules too; the last that fits counts."""
    names: dict[View, dict[str, None]] = {}
    for alert in table:
        names.setdefault(SUBJECTS[alert.subject].view, {})[alert.name] = None
    yield Page("alertname", ".*", _RUNS)
    for view, found in names.items():
        if view not in (_RUNS, RUN):
            yield Page("alertname", "|".join(found), view)
    yield Page("run", ".+", RUN)


def shown_on(dashboard: str, table: Iterable[Alert]) -> str:
    """Return a pattern of PromQL for the names of all alerts about what a dashboard shows, by its uid."""
    return "|".join(
        dict.fromkeys(each.name for each in table if SUBJECTS[each.subject].view.dashboard == dashboard)
    )

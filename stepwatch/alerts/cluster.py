"""Alerts for clusters: nodes with agents, their network, and slow GPUs."""

from __future__ import annotations

from functools import partial

from stepwatch.alerts.model import identity
from stepwatch.alerts.model.alert import (
    DURATION,
    JUDGED,
    RATIO,
    WHOLE,
    Alert,
    Condition,
    CriticalBlock,
    WarningBlock,
    hold,
)
from stepwatch.alerts.model.expression import Expression, Formula, Limit, On
from stepwatch.alerts.model.identity import written
from stepwatch.alerts.model.runs import CLOCK_RATIO, RECORDED
from stepwatch.alerts.model.targets import EVENT_WINDOW, GPU, STEADY_DELAY, agents, delay, servers
from stepwatch.schema import scalars
from stepwatch.schema.scalars import Duration, PositiveSpan, Span
from stepwatch.schema.section import default

_alert = partial(Alert, topic="stack", keep=False)

_NODE = 'label_replace({}, "node", "$1", "instance", "(.+):[0-9]+")'
"""PromQL of series with the node of their instance: an agent names its targets NODE:port."""


class NodeLost(CriticalBlock):
    """A node stopped sending data while a run uses it: the machine, its network or its agent is down.

    If it is unknown which run uses the node, any running run counts. Does not fire for a node whose GPU
    memory was free or whose runs had ended.
    """

    silence: PositiveSpan = default(
        Duration.parse("2m"),
        "Time since the hub last got new data from its agent, which writes every few seconds and retries"
        " at least every 10s while the hub does not answer.",
        JUDGED,
    )
    used_ratio: scalars.Ratio = default(
        0.1,
        "A GPU is in use if this share of its memory is in use: a driver and a desktop need less.",
        JUDGED,
    )
    within: PositiveSpan = default(
        Duration.parse("1h"),
        "How long a node is remembered, and the longest time that the alert fires.",
        JUDGED,
    )
    for_: Span = hold("1m", "Agents need less time to write again after a hub restart.", JUDGED)


_running = 'max by (cluster, run) (last_over_time(rl_run_state{state="running"}[<within>s])) == 1'
_of_runs = f"present_over_time({RECORDED}[<within>s])"
_held = 'last_over_time(gpu_memory_used_bytes{node!=""}[<within>s])'
_used = (
    f"group by (node) ({_NODE.format(f'{_of_runs} and on (cluster, run) ({_running})')})\n"
    "or group by (node) (\n"
    f'  {_held} / last_over_time(gpu_memory_total_bytes{{node!=""}}[<within>s]) > <used_ratio>\n'
    ")"
)
_known = (
    f"group by (node) ({_NODE.format(_of_runs)})\nor group by (node) ({_held.replace('last', 'present')})"
)

NODE_LOST = _alert(
    NodeLost,
    summary="Node lost during a run",
    action="`ping` the node, check its console and BMC; then check its agent: `make status` there",
    conditions=(
        Condition(
            "no data for",
            Formula("time()")
            - agents("max_over_time(stepwatch_agent_last_write_timestamp_seconds[<within>s])")
            > Limit("silence"),
        ),
    ),
    # While the receiver does not answer, the state of all nodes is unknown.
    given=agents('present_over_time(up{node!=""}[<within>s])')
    & On("", Formula('up{job="receiver"} == 1'))
    & On("", Formula(_running)),
    sparing=On("node", Formula(f"({_known})\nunless on (node) ({_used})")),
    about="node",
    style=DURATION,
)


class AgentBacklog(WarningBlock):
    """Data from an agent is delayed by a varying time; a constant delay is a clock offset (ClockSkew)."""

    behind: PositiveSpan = default(
        Duration.parse("1m"),
        "Age of its newest data, at each moment of 5 minutes; some seconds are normal.",
        JUDGED,
    )
    for_: Span = hold("10m", "After a network outage, an agent catches up within minutes.", JUDGED)


AGENT_BACKLOG = _alert(
    AgentBacklog,
    summary="Data from a node is delayed, and so are its alerts",
    action="check the network to the hub, the load of both, and Prometheus' log on the node",
    conditions=(
        Condition(
            "delayed by", agents(delay("min_over_time(stepwatch_agent_delay_seconds[5m])")) > Limit("behind")
        ),
    ),
    sparing=agents(STEADY_DELAY),
    about="node",
    style=DURATION,
)


class CertificateExpires(WarningBlock):
    """The certificate that the hub shows its agents expires soon; after that no agent can write."""

    left: PositiveSpan = default(Duration.parse("14d"), "Time left: two weeks to renew it.", JUDGED)
    for_: Span = hold("1m", "Longer than a single bad scrape.", JUDGED)


CERTIFICATE_EXPIRES = _alert(
    CertificateExpires,
    summary="Hub certificate for agents expires soon",
    action="replace the files of `agents.cert_file` and `agents.key_file` on the hub",
    conditions=(
        Condition(
            "time left:",
            servers("stepwatch_agent_certificate_expiry_timestamp_seconds") - Formula("time()")
            < Limit("left"),
        ),
    ),
    about="server",
    style=DURATION,
)


class InfiniBandErrors(WarningBlock):
    """An InfiniBand or RoCE port (node_exporter) fails, recovers repeatedly, or is slower than before.

    Does not fire for a port that was never up.
    """

    downs: scalars.Limit = default(
        0, "Link-down events within an hour: NCCL waits some seconds, then fails.", JUDGED
    )
    symbol_errors: scalars.Limit = default(
        200, "Symbol errors within an hour; error correction handles a few.", JUDGED
    )
    errors: scalars.Limit = default(
        5,
        "More serious errors of one kind (recoveries, bad packets, integrity, overruns) within an hour.",
        JUDGED,
    )
    within: PositiveSpan = default(
        Duration.parse("1d"), "How long the state and the speed of a port are remembered.", JUDGED
    )
    for_: Span = hold("1m", "Longer than a single bad scrape.", JUDGED)


def _ports(inner: str) -> Formula:
    return Formula(f"max by ({written(identity.PORT)}) ({inner})")


def _errors(counter: str) -> Expression:
    """Return by how much a counter of each port rose recently."""
    name = f"node_infiniband_{counter}_total"
    return _ports(f"{name} - min_over_time({name}[{EVENT_WINDOW}])")


_state, _rate = "node_infiniband_state_id", "node_infiniband_rate_bytes_per_second"

INFINIBAND_ERRORS = _alert(
    InfiniBandErrors,
    summary="InfiniBand port fails or is slow",
    action="`ibstat`, `mlxlink -d DEVICE -c`; reseat or replace cable and transceiver",
    conditions=(
        Condition("link-down events within 1 h:", _errors("link_downed") > Limit("downs")),
        Condition("symbol errors within 1 h:", _errors("symbol_error") > Limit("symbol_errors")),
        *(
            Condition(f"{words} within 1 h:", _errors(counter) > Limit("errors"))
            for counter, words in (
                ("link_error_recovery", "link recoveries"),
                ("port_errors_received", "bad packets received"),
                ("local_link_integrity_errors", "link integrity errors"),
                ("excessive_buffer_overrun_errors", "buffer overruns"),
            )
        ),
        Condition(
            "state of the port (4: active):",
            _ports(_state) < 4,
            given=_ports(f"max_over_time({_state}[<within>s])") >= 4,
        ),
        Condition(
            "bytes/s, compared with the maximum within <within>:",
            _ports(_rate) < _ports(f"max_over_time({_rate}[<within>s])"),
        ),
    ),
    about="port",
    style=WHOLE,
)


class Straggler(WarningBlock):
    """A GPU is slower than its busy peers and slows down every rank of its run.

    Peers are GPUs of the same model in the same run or, if the run is unknown, in the same machine. The alert
    compares clocks, not load: rollout and training load differ, and all GPUs pause.
    """

    clock_ratio: scalars.Ratio = default(
        0.85,
        "Highest SM clock of 5 minutes, as a share of the median of its peers. Cards of one model under"
        " equal load differ by a few percent; a card throttled by heat or power loses a fifth or more.",
        JUDGED,
    )
    peers: scalars.Count = default(
        4, "Busy GPUs, including this one: with fewer, the median is unreliable.", JUDGED
    )
    for_: Span = hold("10m", "Longer than validation, checkpoints and brief temperature peaks.", JUDGED)


_PEERS = "cluster, run, peers, model"


def _of_peers(aggregation: str) -> Formula:
    """Return a figure of a GPU's peers for each GPU; the lower one where it is of two runs."""
    return Formula(
        f"min by ({GPU}) (0 * {CLOCK_RATIO} + on ({_PEERS}) group_left ()"
        f" {aggregation.format(f'by ({_PEERS})', CLOCK_RATIO)})"
    )


STRAGGLER = Alert(
    Straggler,
    topic="gpu",
    summary="GPU is slower than its peers",
    action="`nvidia-smi -q -d CLOCK,PERFORMANCE,POWER,TEMPERATURE -i {gpu}`; compare with a peer's",
    conditions=(
        Condition(
            "highest SM clock of 5 min, share of the card's maximum:",
            Formula(f"max by ({GPU}) ({CLOCK_RATIO})")
            < Limit("clock_ratio") * _of_peers("quantile {} (0.5, {})"),
            "from the median of its peers",
            given=_of_peers("count {} ({})") >= Limit("peers"),
        ),
    ),
    about="gpu",
    style=RATIO,
)

ALERTS = (
    NODE_LOST,
    STRAGGLER,
    INFINIBAND_ERRORS,
    AGENT_BACKLOG,
    CERTIFICATE_EXPIRES,
)

"""Alerts that only a cluster has: on nodes with agents, their network, and GPUs among their peers."""

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
from stepwatch.schema.quantities import Duration
from stepwatch.schema.scalars import PositiveSpan, Span
from stepwatch.schema.section import default

_alert = partial(Alert, topic="stack", keep=False)

_NODE = 'label_replace({}, "node", "$1", "instance", "(.+):[0-9]+")'
"""PromQL of series with the node of their instance: an agent names its targets NODE:port."""

# The write door knows nodes by name alone, agents may send a cluster besides: they are joined by `node`.


class NodeLost(CriticalBlock):
    """The data of a node have stopped while a run uses it: the machine, its network or its agent is gone.

    Where it is not known which run uses the node, while any run is running. Silent for a node that held no
    memory of its GPUs any more, or whose runs had ended, and for one whose credential was removed.
    """

    silence: PositiveSpan = default(
        Duration.parse("2m"),
        "Time since the hub last took data of its agent, which writes each few seconds, and for as long"
        " as the hub does not answer tries again each 5s at least.",
        JUDGED,
    )
    used_ratio: scalars.Ratio = default(
        0.1,
        "A GPU is in use with this share of its memory: what a driver and a desktop take is less.",
        JUDGED,
    )
    within: PositiveSpan = default(
        Duration.parse("1h"), "How long a node is remembered, and the alert fires at most.", JUDGED
    )
    for_: Span = hold("1m", "After a restart of the hub its agents have written again by then.", JUDGED)


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
    action="`ping` the node, its console, its BMC; then its agent: `make status` there",
    conditions=(
        Condition(
            "no data for",
            Formula("time()")
            - agents("max_over_time(stepwatch_agent_last_write_timestamp_seconds[<within>s])")
            > Limit("silence"),
        ),
    ),
    # While the door itself does not answer, nothing is known of any node.
    given=agents("stepwatch_agent_credentials")
    & On("node", Formula('group by (node) (present_over_time(up{node!=""}[<within>s]))'))
    & On("", Formula(_running)),
    sparing=On("node", Formula(f"({_known})\nunless on (node) ({_used})")),
    about="node",
    style=DURATION,
)


class AgentBacklog(WarningBlock):
    """The data of an agent come late, and not by a fixed time, which would be its clock (ClockSkew)."""

    behind: PositiveSpan = default(
        Duration.parse("1m"),
        "Age of its newest data when they come, at any moment of 5 minutes; some seconds are usual.",
        JUDGED,
    )
    for_: Span = hold("10m", "What a network that was cut has held up is made up for within minutes.", JUDGED)


AGENT_BACKLOG = _alert(
    AgentBacklog,
    summary="Data of a node come late: its alerts do, too",
    action="see the network to the hub and the load of both; on the node, Prometheus' log",
    conditions=(
        Condition(
            "late by", agents(delay("min_over_time(stepwatch_agent_delay_seconds[5m])")) > Limit("behind")
        ),
    ),
    sparing=agents(STEADY_DELAY),
    about="node",
    style=DURATION,
)


class AgentRefused(WarningBlock):
    """The hub refuses what an agent sends: nothing of its node is watched."""

    requests: scalars.Limit = default(
        5, "Refused within 5 minutes, for one reason. An agent sends some each minute, a scanner one.", JUDGED
    )
    for_: Span = hold("5m", "A credential that is being renewed is in its place by then.", JUDGED)


AGENT_REFUSED = _alert(
    AgentRefused,
    summary="Hub refuses the data of an agent",
    action="compare `node` and `hub.token_file` in the agent's config.yaml with what the hub knows of it,"
    " and both clocks",
    conditions=tuple(
        Condition(
            f"requests refused in 5 min, {why}:",
            agents(f'increase(stepwatch_agent_refused_total{{reason="{reason}"}}[5m])') > Limit("requests"),
        )
        for reason, why in (
            ("credential", "credential missing or unknown"),
            ("node_label", "data of another node than the credential's"),
            ("size", "too large"),
            ("format", "not in the format of remote write 1.0"),
            ("clock", "more than ten minutes ahead of the hub's clock"),
        )
    ),
    about="agent",
    style=WHOLE,
)


class CertificateExpires(WarningBlock):
    """The certificate of the hub's write door expires: then no agent writes any more."""

    left: PositiveSpan = default(Duration.parse("14d"), "Time left: two weeks to get another one.", JUDGED)
    for_: Span = hold("1m", "Longer than one odd scrape.", JUDGED)


CERTIFICATE_EXPIRES = _alert(
    CertificateExpires,
    summary="Certificate of the write door expires",
    action="put a new one in the place of `agents.cert_file` and `agents.key_file`, then `make up` on the"
    " hub",
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
    """A port of InfiniBand or RoCE (node_exporter) fails, recovers again and again, or is slower than it was.

    A port that was never up does not count.
    """

    downs: scalars.Limit = default(
        0, "Times that the link went down within an hour: NCCL waits some seconds, then fails.", JUDGED
    )
    symbol_errors: scalars.Limit = default(
        200, "Bits that arrived wrong within an hour; correction makes good for a few.", JUDGED
    )
    errors: scalars.Limit = default(
        5, "Worse errors of one kind (recoveries, bad packets, integrity, overruns) within an hour.", JUDGED
    )
    within: PositiveSpan = default(
        Duration.parse("1d"), "How long it is remembered that a port was up, and how fast.", JUDGED
    )
    for_: Span = hold("1m", "Longer than one odd scrape.", JUDGED)


def _ports(inner: str) -> Formula:
    return Formula(f"max by ({written(identity.PORT)}) ({inner})")


def _errors(counter: str) -> Expression:
    """Return by how much a counter of each port rose of late."""
    name = f"node_infiniband_{counter}_total"
    return _ports(f"{name} - min_over_time({name}[{EVENT_WINDOW}])")


_state, _rate = "node_infiniband_state_id", "node_infiniband_rate_bytes_per_second"

INFINIBAND_ERRORS = _alert(
    InfiniBandErrors,
    summary="InfiniBand port fails or is slow",
    action="`ibstat`, `mlxlink -d DEVICE -c`; reseat or replace cable and transceiver",
    conditions=(
        Condition("the link went down within 1 h, times:", _errors("link_downed") > Limit("downs")),
        Condition("symbol errors within 1 h:", _errors("symbol_error") > Limit("symbol_errors")),
        *(
            Condition(f"{words} within 1 h:", _errors(counter) > Limit("errors"))
            for counter, words in (
                ("link_error_recovery", "recoveries of the link"),
                ("port_errors_received", "bad packets received"),
                ("local_link_integrity_errors", "errors of link integrity"),
                ("excessive_buffer_overrun_errors", "buffer overruns"),
            )
        ),
        Condition(
            "state of the port (4: active):",
            _ports(_state) < 4,
            given=_ports(f"max_over_time({_state}[<within>s])") >= 4,
        ),
        Condition(
            "bytes/s, of those within <within>:", _ports(_rate) < _ports(f"max_over_time({_rate}[<within>s])")
        ),
    ),
    about="port",
    style=WHOLE,
)


class Straggler(WarningBlock):
    """A GPU is slower than its peers at work, and with it every rank of its run.

    Peers are GPUs of the same model: those of its run; where runs are not known, those of its machine.
    Clocks are compared, not load: what rollout and training do differs, and pauses are of all.
    """

    clock_ratio: scalars.Ratio = default(
        0.85,
        "Highest SM clock of 5 minutes, as a share of the median of its peers'. Cards of one model that work"
        " alike differ by a few percent; a card that heat or power holds down loses a fifth and more.",
        JUDGED,
    )
    peers: scalars.Count = default(
        4, "GPUs at work, itself included: of fewer the median says little.", JUDGED
    )
    for_: Span = hold("10m", "Validation, checkpoints and a warm moment do not last as long.", JUDGED)


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
            "highest SM clock of 5 min, of what the card can do:",
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
    AGENT_REFUSED,
    CERTIFICATE_EXPIRES,
)

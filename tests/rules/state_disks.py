"""The cases of the rule about the disks with Stepwatch's own state."""

from __future__ import annotations

from tests.rules.host import disk
from tests.rules.series import selector
from tests.rules.stack import Labels, Scenario

EXPORTER = {"job": "runs", "instance": "a:9410"}
STATE = {"device": "/dev/vdb1", "fstype": "ext4", "mountpoint": "/state"}
ALERT = {"instance": "a:9410", "mountpoint": "/state"}

SIZE, FILES = 1000, 5000
ENOUGH = 5 << 30


def state(free: str, files_free: str = "4000+0x200", size: int = SIZE, files: int = FILES, **other: str):
    """A file system as the run exporter shows it; others than the usual one differ by a label."""
    where = {**EXPORTER, **STATE, **other}
    return {
        selector("stepwatch_state_filesystem_free_bytes", **where): free,
        selector("stepwatch_state_filesystem_size_bytes", **where): f"{size}+0x200",
        selector("stepwatch_state_filesystem_files_free", **where): files_free,
        selector("stepwatch_state_filesystem_files", **where): f"{files}+0x200",
    }


def _seen(name: str, labels: Labels, fired: list[Labels], **more: str) -> Scenario:
    """The disk is full, and node_exporter shows a disk with these labels."""
    shown = disk("1+0x200", **{**STATE, **labels}) | {
        selector("up", job="node", instance="a:9100"): "1+0x200"
    }
    return Scenario(name, {**state("1+0x200", **more), **shown}, {62: fired, 302: fired})


CASES = (
    Scenario("healthy", state("500+0x200"), {62: [], 602: []}),
    Scenario("just at the limit", state("100+0x200"), {62: [], 302: []}),
    Scenario("just below the limit", state("99.5+0x200"), {57: [], 62: [ALERT], 302: [ALERT]}),
    Scenario("for less than a minute", state("1+0x11 500+0x200"), {57: [], 62: [], 122: []}),
    Scenario(
        "until files are deleted, one of two",
        {
            **state("500+0x11 1+0x30 500+0x200"),
            **state("500+0x200", device="/dev/vdc1", mountpoint="/other"),
        },
        {57: [], 117: [], 122: [ALERT], 207: [ALERT], 217: []},
    ),
    Scenario("just enough of a huge one", state(f"{ENOUGH}+0x200", size=1 << 50), {62: [], 302: []}),
    Scenario("just not enough", state(f"{0.999 * ENOUGH:.0f}+0x200", size=1 << 50), {62: [ALERT]}),
    Scenario("just enough inodes", state("500+0x200", "500+0x200"), {62: [], 302: []}),
    Scenario("just too few inodes", state("500+0x200", "498+0x200"), {57: [], 62: [ALERT]}),
    Scenario("no limit of inodes", state("500+0x200", "0+0x200", files=0), {62: [], 302: []}),
    Scenario("bytes and inodes", state("1+0x200", "1+0x200"), {62: [ALERT]}),
    Scenario("seen by two exporters", {**state("1+0x200"), **state("1+0x200", job="mine")}, {62: [ALERT]}),
    Scenario("memory", state("1+0x200", device="tmpfs", fstype="tmpfs"), {62: [ALERT]}),
    _seen("node_exporter shows the same disk, wherever it is mounted", {"mountpoint": "/data"}, []),
    _seen("node_exporter shows another disk", {"device": "/dev/vdc1"}, [ALERT]),
    _seen(
        "memory that node_exporter shows holds no checkpoints",
        {"device": "tmpfs", "fstype": "tmpfs", "mountpoint": "/dev/shm"},
        [ALERT],
        device="tmpfs",
        fstype="tmpfs",
    ),
    _seen("node_exporter shows it as part of the system's start", {"mountpoint": "/boot"}, [ALERT]),
    _seen("the node_exporter of another machine shows a disk of that name", {"job": "others"}, [ALERT]),
)

SCENARIOS: dict[tuple[str, str], tuple[Scenario, ...]] = {("StateDiskLow", "warning"): CASES}

"""The cases of every rule about machines: series over time, and what fires when."""

from __future__ import annotations

from tests.rules.series import selector
from tests.rules.stack import Labels, Scenario, by_the_minute

NODE = {"job": "node", "instance": "a:9100"}
OTHER_NODE = {"job": "node", "instance": "b:9100"}
HERE, THERE = {"instance": "a:9100"}, {"instance": "b:9100"}

TOTAL = 1000


def memory(available: str, labels: Labels = NODE) -> dict[str, str]:
    """A machine with 1000 bytes of memory."""
    return {
        selector("node_memory_MemAvailable_bytes", **labels): available,
        selector("node_memory_MemTotal_bytes", **labels): f"{TOTAL}+0x500",
    }


MEMORY = (
    by_the_minute("healthy", memory("500+0x300"), {6: [], 130: [], 290: []}),
    by_the_minute("just at the limit", memory("50+0x60"), {6: [], 50: []}),
    by_the_minute(
        "just beyond the limit, for a while, one machine of two",
        {**memory("500+0x9 49+0x9 500+0x60"), **memory("500+0x90", OTHER_NODE)},
        {14: [], 15: [HERE], 29: [HERE], 31: []},
    ),
    by_the_minute("full for four minutes", memory("500+0x9 1+0x3 500+0x60"), {14: [], 16: []}),
    by_the_minute(
        "full, and not scraped for two minutes",
        memory("1+0x19 stale _x1 1+0x60"),
        {19: [HERE], 21: [HERE], 50: [HERE]},
    ),
    by_the_minute(
        "leaks, known for less than two hours, then for more",
        memory("1000-4x200"),
        {70: [], 123: [], 126: [HERE]},
    ),
    by_the_minute(
        "leaks fast for an hour, then so slowly that it lasts for just 4 hours",
        memory("601.5-5x60 300.5-1x200"),
        {125: [], 126: [], 128: [HERE]},
    ),
    by_the_minute(
        "leaks for an hour so slowly that it would last for just 4 more, then fast",
        memory("360.5-1x60 298.5-2x140"),
        {125: [], 127: [HERE]},
    ),
    by_the_minute(
        "leaks for two hours after it did not", memory("330+0x200 330-1x200"), {290: [], 327: [HERE]}
    ),
    by_the_minute(
        "a run loads its model",
        memory("900+0x150 900-60x10 300+0x200"),
        {156: [], 170: [], 215: [], 250: [], 290: []},
    ),
    by_the_minute(
        "goes up and down with the steps of a run",
        memory(" ".join(["600-20x10 400+20x8"] * 15)),
        {125: [], 130: [], 135: [], 140: [], 200: []},
    ),
)

FIVE_MINUTES = 300
SIZE = 10_000
CHECKPOINT = 2000
DISK = {"device": "/dev/nvme0n1", "fstype": "ext4", "mountpoint": "/data"}
DATA = {**HERE, "mountpoint": "/data"}
HOURS = 12
"""Samples in an hour."""


def disk(free: str, labels: Labels = NODE, size: float = SIZE, **other: str) -> dict[str, str]:
    """A file system; others than the usual one differ by a label."""
    where = {**labels, **DISK, **other}
    return {
        selector("node_filesystem_avail_bytes", **where): free,
        selector("node_filesystem_size_bytes", **where): f"{size:.0f}+0x600",
        selector("node_filesystem_readonly", **where): "0+0x600",
    }


def _levels(*levels: tuple[float, int]) -> str:
    """Free bytes for so many samples each."""
    return " ".join(f"{level:.6f}+0x{samples - 1}" for level, samples in levels)


def _over_a_day(name: str, series: dict[str, str], alerts: dict[float, list[Labels]]) -> Scenario:
    """A scenario with a sample each five minutes; times in samples."""
    return Scenario(
        name, series, {FIVE_MINUTES * at + 60: fired for at, fired in alerts.items()}, FIVE_MINUTES
    )


def _twice(free: float, earlier: float, later: float) -> str:
    """Something is written at 6 h, tidied up, and something at 19 h; then so much is left."""
    return _levels((free + earlier, 6 * HOURS), (free, HOURS), (free + later, 12 * HOURS), (free, 20 * HOURS))


AT_19 = 19 * HOURS


def low(share: float, times: float) -> tuple[Scenario, ...]:
    """What a severity does that looks for this share, and for this many checkpoints."""
    limit, plenty, enough = times * CHECKPOINT, 9 * CHECKPOINT, 1 << 40
    return (
        _over_a_day("healthy", disk(_levels((5000, 400))), {2: [], 60: []}),
        _over_a_day("just at its share", disk(_levels((share * SIZE, 60))), {3: [], 50: []}),
        _over_a_day(
            "just below its share, until files are deleted",
            {
                **disk(_levels((5000, 10), (share * SIZE * 0.995, 20), (5000, 60))),
                **disk(_levels((5000, 90)), OTHER_NODE),
                **disk(_levels((5000, 90)), device="/dev/sda1", mountpoint="/home"),
            },
            {10: [], 11: [DATA], 31: [DATA], 32: []},
        ),
        _over_a_day("just enough of a huge one", disk(f"{enough}+0x60", size=1e16), {3: [], 50: []}),
        _over_a_day(
            "just not enough of a huge one", disk(f"{0.995 * enough:.0f}+0x60", size=1e16), {0: [], 1: [DATA]}
        ),
        _over_a_day(
            "two disks of two machines, seen by two jobs",
            {
                **disk(_levels((1, 60))),
                **disk(_levels((1, 60)), {**NODE, "job": "mine"}),
                **disk(_levels((1, 60)), OTHER_NODE),
                **disk(_levels((1, 60)), mountpoint="/home"),
            },
            {3: [DATA, {**THERE, "mountpoint": "/data"}, {**HERE, "mountpoint": "/home"}]},
        ),
        _over_a_day(
            "checkpoints come again, and there is no room for more",
            disk(_twice(limit - 1, CHECKPOINT, CHECKPOINT)),
            {80: [], AT_19: [], AT_19 + 1: [DATA], 358: [DATA], 364: []},
        ),
        _over_a_day(
            "each takes ten minutes",
            disk(
                _levels(
                    (limit - 1 + CHECKPOINT, 6 * HOURS),
                    (limit - 1 + CHECKPOINT / 2, 1),
                    (limit - 1, HOURS - 1),
                    (limit - 1 + CHECKPOINT, 12 * HOURS),
                    (limit - 1 + CHECKPOINT / 2, 1),
                    (limit - 1, 20 * HOURS),
                )
            ),
            {AT_19: [], AT_19 + 2: [DATA]},
        ),
        _over_a_day(
            "just room for more", disk(_twice(limit, CHECKPOINT, CHECKPOINT)), {AT_19 + 2: [], 240: []}
        ),
        _over_a_day(
            "just room for more; larger ones before",
            disk(_twice(limit, plenty, CHECKPOINT)),
            {AT_19 + 2: [], 240: []},
        ),
        _over_a_day(
            "just room for more; larger ones now",
            disk(_twice(limit, CHECKPOINT, plenty)),
            {AT_19 + 2: [], 240: []},
        ),
        _over_a_day(
            "a little more than room for more; larger ones before",
            disk(_twice(limit * 1.005, plenty, CHECKPOINT)),
            {AT_19 + 2: [], 240: []},
        ),
        _over_a_day(
            "a little more than room for more; larger ones now",
            disk(_twice(limit * 1.005, CHECKPOINT, plenty)),
            {AT_19 + 2: [], 240: []},
        ),
        _over_a_day(
            "data are copied once",
            disk(_levels((limit - 1 + plenty, AT_19), (limit - 1, 18 * HOURS))),
            {AT_19 + 2: [], 240: [], 370: []},
        ),
        *(
            _over_a_day(
                f"two small ones within 20 minutes {when}",
                disk(_levels((free + first, 6 * HOURS), *steps, (free, 20 * HOURS))),
                {AT_19 + 6: [], 240: []},
            )
            for free in (limit * 1.2,)
            for when, first, steps in (
                (
                    "now",
                    plenty,
                    ((free, HOURS), (free + 2 * CHECKPOINT, 12 * HOURS), (free + CHECKPOINT, 3)),
                ),
                (
                    "before",
                    2 * CHECKPOINT,
                    ((free + CHECKPOINT, 3), (free, HOURS), (free + plenty, 12 * HOURS - 3)),
                ),
            )
        ),
        _over_a_day(
            "full, and the exporter does not answer for five minutes",
            disk("1+0x9 stale 1+0x60"),
            {9: [DATA], 10: [DATA], 40: [DATA]},
        ),
        _over_a_day(
            "what holds no checkpoints",
            {
                **disk(_levels((1, 60)), fstype="tmpfs", mountpoint="/dev/shm"),
                **disk(_levels((1, 60)), fstype="squashfs", mountpoint="/snap/core/1"),
                **disk(_levels((1, 60)), fstype="overlay", mountpoint="/var/lib/containers/1"),
                **disk(_levels((1, 60)), fstype="vfat", mountpoint="/boot/efi"),
                **disk(_levels((1, 60)), mountpoint="/boot"),
                **disk(_levels((1, 60)), mountpoint="/run/media/a"),
            },
            {3: [], 50: []},
        ),
        _over_a_day(
            "nothing can be written to it",
            {
                name: values.replace("0+0x600", "1+0x600") if "readonly" in name else values
                for name, values in disk(_levels((1, 60))).items()
            },
            {3: [], 50: []},
        ),
        _over_a_day(
            "shared storage of several machines",
            {
                **disk(_levels((1, 60)), fstype="nfs4", mountpoint="/shared"),
                **disk(_levels((1, 60)), OTHER_NODE, fstype="lustre", mountpoint="/shared"),
            },
            {3: [{**HERE, "mountpoint": "/shared"}, {**THERE, "mountpoint": "/shared"}]},
        ),
    )


SCENARIOS: dict[tuple[str, str], tuple[Scenario, ...]] = {
    ("HostMemory", "warning"): MEMORY,
    ("DiskLow", "warning"): low(share=0.1, times=2),
    ("DiskLow", "critical"): low(share=0.01, times=1),
}

"""The processes that use a GPU: how many, and who they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.gpu.processes import identity
from exporter.process import pid_namespace
from tests.gpu.driver import Driver
from tests.gpu.expected import lacking
from tests.gpu.exporter import Starting, all_ok
from tests.runs.scrape import Scrape

MIB = 2**20
FAST = ("--interval=0.1", "--retry=0.3")
ID = "0123456789ab" + 52 * "c"
FIRST = 5_000_001
"""No process here has a number so high."""
HELD = "gpu_process_memory_bytes"


class Host:
    """A host's ``/proc`` as it is mounted in a container."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, pid: int, name: bytes, cgroup: str = "0::/") -> None:
        (self.folder / str(pid)).mkdir(parents=True)
        (self.folder / str(pid) / "comm").write_bytes(name + b"\n")
        (self.folder / str(pid) / "cgroup").write_text(cgroup + "\n")


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> Host:
    return Host(tmp_path / "proc")


def counts(found: Scrape, gpu: int = 0) -> dict[str, float]:
    return {dict(labels)["type"]: n for labels, n in found.all("gpu_processes", gpu=str(gpu)).items()}


def held(found: Scrape, metric: str = HELD) -> dict[tuple[str, str, str], float]:
    """Values by pid, name and container."""
    return {
        (named["pid"], named["name"], named["container"]): value
        for named, value in ((dict(labels), value) for labels, value in found.all(metric).items())
    }


def worked(found: Scrape) -> dict[str, float]:
    """Shares by pid."""
    return {pid: share for (pid, _, _), share in held(found, "gpu_process_sm_utilization_ratio").items()}


def use(pid: int, mebibytes: int = 1, percent: int = 0, kind: str = "compute") -> str:
    return f"process=0:{kind}:{pid}:{mebibytes}:{percent}"


def test_processes_are_counted_and_not_named_unless_asked_for(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", use(FIRST), use(FIRST + 1), use(FIRST, kind="graphics"), use(9, kind="mps"))
    found = start().until(all_ok)

    assert counts(found) == {"compute": 2, "graphics": 1, "mps": 1}
    assert counts(found, 3) == {"compute": 0, "graphics": 0, "mps": 0}
    assert not [name for name, _ in found.samples if name.startswith("gpu_process_")]
    assert driver.calls()["GetProcessUtilization", 0] == driver.calls()["GetProcessesUtilizationInfo", 0] == 0


@pytest.mark.parametrize("missing", [(), ("nvmlDeviceGetProcessesUtilizationInfo",)])
def test_those_with_most_memory_are_named_and_the_others_are_one(
    driver: Driver, start: Starting, host: Host, missing: tuple[str, ...]
) -> None:
    """One that is listed twice is one; memory that is not known, and an impossible share, are no number."""
    host.add(FIRST + 2, b"python3", f"0::/system.slice/docker-{ID}.scope")
    host.add(FIRST + 1, b'a"b\\c\nd\xff\r')
    driver.install(*missing)
    driver.tell(
        "gpus=1",
        *(use(FIRST + 3, 10, 5), use(FIRST + 1, 200, 20), use(FIRST, 40, 10), use(FIRST + 2, 300, 30)),
        *(use(FIRST + 2, 300, 30), use(FIRST + 2, 100, kind="graphics"), use(FIRST + 4, -1, 101)),
    )
    found = start(*FAST, "--processes=2", f"--proc={host.folder}").until(worked)

    assert held(found) == {
        (str(FIRST + 2), "python3", ID[:12]): 300 * MIB,
        (str(FIRST + 1), 'a"b\\c\nd\ufffd\r', ""): 200 * MIB,
        ("", "other", ""): 50 * MIB,
    }
    assert counts(found) == {"compute": 5, "graphics": 1, "mps": 0}
    assert worked(found) == {str(FIRST + 2): 0.3, str(FIRST + 1): 0.2, "": pytest.approx(0.15)}
    assert found.value("gpu_exporter_collect_errors_total", call="GetProcessUtilization", code="garbage") == 1


def test_processes_come_and_go(driver: Driver, start: Starting, host: Host) -> None:
    driver.tell("gpus=1", use(FIRST, 300))
    exporter = start(*FAST, "--processes=4", f"--proc={host.folder}")
    exporter.until(lambda found: held(found) == {(str(FIRST), "", ""): 300 * MIB})
    host.add(FIRST + 1, b"late")
    driver.tell("gpus=1", use(FIRST + 1, 20))
    exporter.until(lambda found: held(found) == {(str(FIRST + 1), "late", ""): 20 * MIB})
    driver.tell("gpus=1")
    found = exporter.until(lambda found: not held(found))

    assert counts(found) == {"compute": 0, "graphics": 0, "mps": 0}
    assert not worked(found)
    assert not [call for call in lacking(found, 0) if "Process" in call]
    assert not found.all("gpu_exporter_collect_errors_total")


def test_a_thousand_processes_are_as_many_series_as_were_asked_for(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=1", "crowd=0:1000")
    found = start(*FAST, "--processes=16").until(held)

    assert counts(found)["compute"] == 1000
    assert len(held(found)) == 17
    assert held(found)["", "other", ""] == (1000 - 16) * MIB


def test_lists_that_grow_while_they_are_read_are_read_again_but_not_for_ever(
    driver: Driver, start: Starting
) -> None:
    driver.tell("gpus=1", use(FIRST, 300, 40), "growing=2")
    exporter = start(*FAST, "--processes=4")
    found = exporter.until(worked)
    assert counts(found)["compute"] == 1
    assert not found.all("gpu_exporter_collect_errors_total")
    driver.tell("gpus=1", use(FIRST, 300, 40), "growing=1000000")
    failed = {"call": "GetRunningProcesses", "code": "insufficient_size"}
    found = exporter.until(
        lambda found: found.all("gpu_exporter_collect_errors_total", **failed) and not counts(found)
    )

    assert found.value("gpu_up") == 1


@pytest.mark.parametrize("version", ["535.54.03", "535.104.05"])
def test_drivers_that_fill_larger_structures_are_asked_in_the_older_way(
    driver: Driver, start: Starting, version: str
) -> None:
    driver.tell("gpus=1", f"driver={version}", *(use(FIRST + n, 100 * (n + 1)) for n in range(3)))
    found = start(*FAST, "--processes=4").until(held)

    assert held(found) == {(str(FIRST + n), "", ""): 100 * (n + 1) * MIB for n in range(3)}


def test_processes_are_those_of_the_exporters_pid_namespace(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=1", use(os.getpid(), 3), use(FIRST, 2))
    found = start(*FAST, "--processes=1").until(held)

    namespaces = {dict(labels)["pid"]: dict(labels)["pid_namespace"] for labels in found.all(HELD)}
    assert namespaces == {str(os.getpid()): pid_namespace(), "": ""}


def test_a_number_that_may_be_of_two_processes_has_no_name(host: Host) -> None:
    host.add(os.getpid(), b"another")
    host.add(FIRST, b"nobody else")

    assert identity(str(host.folder), os.getpid()) == {"name": "", "container": ""}
    assert identity(str(host.folder), FIRST)["name"] == "nobody else"
    assert identity("/proc", os.getpid())["name"]


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/",
        "0::/user.slice/user-1000.slice/session-3.scope",
        f"0::/x{ID}",
        f"12:memory:/docker/{ID}\n11:cpu:/docker/{ID}",
        f"0::/../docker-{ID}.scope",
        f"0::/system.slice/docker-{ID}.scope/docker/{ID[::-1]}",
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
        f"0::/machine.slice/machine-libpod_pod_{ID[::-1]}.slice/libpod-{ID}.scope",
        f"4:cpu:/kubepods/burstable/pod12345678-1234-1234-1234-123456789012/{ID}",
        f"0::/kubepods.slice/kubepods-besteffort.slice/crio-{ID}.scope/container",
        f"1:cpu:/system.slice/containerd.service/kubepods-besteffort-pod1234.slice:cri-containerd:{ID}",
    ],
)
def test_a_container_is_known_by_the_cgroup(host: Host, cgroup: str) -> None:
    host.add(FIRST, b"python", cgroup)
    container = ID[:12] if ID in cgroup and "/x" not in cgroup else ""

    assert identity(str(host.folder), FIRST) == {"name": "python", "container": container}

"""Which files give the GPU exporter its GPUs, by what Docker says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepwatch.deploy import engine

RUNTIME = {"Runtimes": {"runc": {}, "nvidia": {"path": "nvidia-container-runtime"}}}


class Host:
    """A machine whose `docker info` says what a test wants."""

    def __init__(self, folder: Path, path: pytest.MonkeyPatch) -> None:
        self.device = folder / "nvidiactl"
        self.device.touch()
        self.specifications = folder / "cdi"
        self.specifications.mkdir()
        self._docker = folder / "docker"
        path.setenv("PATH", str(folder), prepend=":")

    def docker(self, **reported: Any) -> None:
        self._docker.write_text(
            f"#!/bin/sh\ncat <<'END'\n{json.dumps({'Runtimes': {'runc': {}}, **reported})}\nEND\n"
        )
        self._docker.chmod(0o755)

    def files(self, *, processes: bool = False) -> tuple[str, ...]:
        return engine.gpu_files(processes=processes, device=self.device)


@pytest.fixture(name="host")
def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path, monkeypatch)
    host.docker()
    return host


CDI = [{"Source": "cdi", "Name": "nvidia.com/gpu=all"}]


@pytest.mark.parametrize(
    ("reported", "files"),
    [
        ({**RUNTIME, "DiscoveredDevices": CDI}, ("compose.gpu.yaml",)),
        ({"DiscoveredDevices": CDI}, ("compose.gpu.cdi.yaml",)),
        ({"CDISpecDirs": None}, ()),
        ({"CDISpecDirs": ["/nowhere"]}, ()),
        ({}, ()),
    ],
)
def test_the_file_is_that_of_what_docker_has(
    host: Host, reported: dict[str, Any], files: tuple[str, ...]
) -> None:
    (host.specifications / "nvidia.yaml").write_text("kind: nvidia.com/gpu")
    host.docker(**reported)
    assert host.files() == files
    assert host.files(processes=True) == ((*files, "compose.processes.yaml") if files else ())
    host.device.unlink()
    assert host.files(processes=True) == ()


@pytest.mark.parametrize(
    ("name", "text"), [("nvidia.yaml", "kind: nvidia.com/gpu"), ("n.json", '"nvidia.com/gpu"')]
)
def test_an_older_docker_is_believed_by_the_specifications_that_it_reads(
    host: Host, name: str, text: str
) -> None:
    host.docker(CDISpecDirs=["/nowhere", str(host.specifications)])
    (host.specifications / "other.yaml").write_text("kind: vendor.com/nic")
    assert host.files() == ()
    (host.specifications / name).write_text(text)
    assert host.files() == ("compose.gpu.cdi.yaml",)


def test_a_docker_that_does_not_answer_gives_nothing(host: Host) -> None:
    (host.device.parent / "docker").write_text("#!/bin/sh\nexit 1\n")
    assert host.files() == ()

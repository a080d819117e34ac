"""Damaged files that keep the real Prometheus and Alertmanager from starting."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwatch.services import lifecycle
from stepwatch.system import http_client
from tests.native.installation import Installation, made
from tests.real import query
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e

GARBAGE = b"x" * 50


@pytest.fixture(name="installation", params=[pytest.param("oldest", marks=pytest.mark.world), "newest"])
def _installation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    installation = made(tmp_path, request.param)
    yield installation
    installation.run("down")


def blocks(installation: Installation) -> list[Path]:
    """The blocks of Prometheus, made of the samples of some hours."""
    data = installation.state / "data/prometheus"
    data.parent.mkdir(parents=True, exist_ok=True)
    end = int(time.time()) // 7200 * 7200 - 7200
    samples = "".join(f"old {n} {n}\n" for n in range(end - 6 * 3600, end, 60))
    source = installation.folder / "samples"
    source.write_text(f"# TYPE old gauge\n{samples}# EOF\n")
    tool = installation.environment["STEPWATCH_PROMTOOL"]
    command = [tool, "tsdb", "create-blocks-from", "openmetrics", str(source), str(data)]
    subprocess.run(command, check=True, capture_output=True)
    return sorted(path for path in data.iterdir() if len(path.name) == 26)


def kept(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.glob("damaged/*/*")}


def test_damaged_files_are_named_and_moved_aside_on_request_and_nothing_else_is(
    installation: Installation,
) -> None:
    bad, *good = blocks(installation)
    prometheus, alertmanager = (installation.state / "data" / name for name in ("prometheus", "alertmanager"))
    assert good
    (bad / "index").write_bytes(b"")
    for file in (
        prometheus / "chunks_head/000001",
        prometheus / "wal/00000000",
        prometheus / "wal/00000009",
        alertmanager / "nflog",
        alertmanager / "silences",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(GARBAGE)

    done = installation.up()

    assert done.returncode == 1
    assert re.fullmatch(r"2 of \d+ parts failed: alertmanager, prometheus", done.stdout.splitlines()[-1])
    findings = f"{installation.url('watchdog')}/api/v1/findings"
    eventually(lambda: '"alertmanager_down"' in (http_client.read(findings) or ""), pause=0.5)
    status = installation.run("status")
    assert re.search(r"Alerting is broken \(the watchdog looked \d+ s ago\):", status.stdout)
    for reported in (done.stdout, status.stdout):
        # Prometheus tells of one at a time.
        assert re.search(
            rf"{prometheus}/\S+ is damaged \(.*loses .*\. Fix: run `make up REPAIR=1`", reported
        ), reported
        assert f"{alertmanager}/nflog is damaged (unexpected EOF)" in reported
        assert "Traceback" not in reported
    assert status.returncode == 1
    assert not list(installation.state.glob("data/*/damaged"))

    done = installation.up("--repair")

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Moved {bad} to {prometheus}/damaged/" in done.stdout
    assert "Alerting is broken" not in done.stdout + installation.run("status").stdout
    aside = {**kept(prometheus), **kept(alertmanager)}
    assert aside.keys() == {bad.name, "chunks_head", "wal", "nflog", "silences"}
    assert (aside["chunks_head"] / "000001").read_bytes() == GARBAGE
    assert aside["nflog"].read_bytes() == aside["silences"].read_bytes() == GARBAGE
    assert [block for block in good if not block.exists()] == []
    day = "count_over_time(old[1d])"
    samples = sum(float(each["value"][1]) for each in query(installation.url("prometheus"), day))
    assert samples >= 60

    done = installation.up("--repair")

    assert done.returncode == 0
    assert lifecycle.NO_DAMAGE in done.stdout
    assert {**kept(prometheus), **kept(alertmanager)} == aside


def test_a_part_that_fails_for_another_reason_loses_no_file(installation: Installation) -> None:
    data = installation.state / "data/prometheus"
    data.parent.mkdir(parents=True)
    data.write_text("mine")

    done = installation.up("--repair")

    assert done.returncode == 1
    assert "prometheus failed" in done.stdout
    assert lifecycle.NO_DAMAGE in done.stdout
    assert data.read_text() == "mine"

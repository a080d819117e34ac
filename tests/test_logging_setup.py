"""What our programs log, in either format: one record a line, no secrets, and no reason to end."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.logging_setup import FORMATS, _Formatter
from stepwatch.system import http_client
from stepwatch.system.environment import CHECKOUT
from tests.gpu.exporter import Exporter as GpuExporter
from tests.real import free_port
from tests.real.waiting import HANG_SECONDS, eventually
from tests.records import Record, records
from tests.runs.test_main import Exporter

SECRET = "hunter2-hunter2"
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

SERVICES = {
    "exporter.runs": ["--port={port}", "--path=."],
    "exporter.gpu": ["--port={port}", "--backend=demo", "--sick=5"],
}


@contextmanager
def _full_disk() -> Iterator[int]:
    with Path("/dev/full").open("w") as full:
        yield full.fileno()


@contextmanager
def _pipe(*, read: bool, full: bool) -> Iterator[int]:
    reader, writer = os.pipe()
    if full:
        os.set_blocking(writer, False)
        os.write(writer, b"x" * fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
        assert not select.select((), (writer,), (), 0)[1]
        os.set_blocking(writer, True)
    if not read:
        os.close(reader)
    yield writer
    os.close(writer)
    if read:
        os.close(reader)


OUTPUTS = {
    "a full disk": _full_disk,
    "a pipe that is full": lambda: _pipe(read=True, full=True),
    "a pipe without a reader": lambda: _pipe(read=False, full=False),
}


@pytest.mark.parametrize(
    ("module", "output"),
    [
        *((module, "a full disk") for module in SERVICES),
        *(("exporter.runs", name) for name in [*OUTPUTS][1:]),
    ],
)
def test_a_service_whose_log_cannot_be_written_serves_on(module: str, output: str, tmp_path: Path) -> None:
    with OUTPUTS[output]() as descriptor:
        _serves([], module, tmp_path, descriptor)


def test_a_service_whose_standard_error_is_closed_serves_on(tmp_path: Path) -> None:
    _serves(["sh", "-c", 'exec "$@" 2>&-', "sh"], "exporter.runs", tmp_path, None)


def _serves(before: list[str], module: str, folder: Path, log: int | None) -> None:
    port = free_port()
    words = [flag.format(port=port, other=free_port()) for flag in SERVICES[module]]
    command = [*before, sys.executable, "-m", module, *words]
    process = subprocess.Popen(
        command, cwd=folder, env={"PYTHONPATH": str(CHECKOUT)}, stdout=subprocess.DEVNULL, stderr=log
    )
    try:
        page = f"http://127.0.0.1:{port}/metrics"
        eventually(lambda: process.poll() is not None or http_client.read(page) is not None)
        assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait() == 0


def _served(tmp_path: Path, *flags: str) -> list[Record]:
    """What an exporter logs that polls a page in vain and is given settings that it cannot use."""
    file = tmp_path / "runs.json"
    pages_of_trainers = [{"url": f"http://127.0.0.1:{free_port()}/metrics"}]
    file.write_text(json.dumps({"pages": pages_of_trainers}))
    exporter = Exporter("--config.file", file, "--path", tmp_path, *flags)
    try:
        exporter.until(lambda found: found.value("stepwatch_target_errors_total"))
        fresh = tmp_path / "new"
        fresh.write_text(json.dumps({"prometheus_url": f"http://me:{SECRET}@h:9090"}))
        fresh.replace(file)
        assert exporter.process.stderr
        log = ""
        while "stay in effect" not in log:
            log += exporter.process.stderr.readline()
    finally:
        exporter.process.terminate()
        _, rest = exporter.process.communicate(timeout=HANG_SECONDS)
    log += rest
    assert SECRET not in log
    return records(log)


def test_each_line_of_the_run_exporter_is_json_with_time_level_logger_and_message(tmp_path: Path) -> None:
    found = _served(tmp_path, "--log.format=json")

    assert all(RFC_3339.fullmatch(each["time"]) for each in found)
    level = {each["logger"]: each["level"] for each in found}
    assert level["exporter.runs"] == "INFO"
    assert level["exporter.runs.pages.source"] == "WARN"
    assert level["exporter.options"] == "ERROR"
    (refused,) = (each["message"] for each in found if each["logger"] == "exporter.options")
    assert "runs.json: prometheus_url: http://h:9090 is not an address. Expected " in refused


def test_below_the_level_nothing_is_logged(tmp_path: Path) -> None:
    assert {each["level"] for each in _served(tmp_path, "--log.level=error")} == {"ERROR"}


def test_a_new_level_and_format_apply_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    file.write_text('{"log_level": "error"}')
    exporter = GpuExporter("--backend=demo", f"--config.file={file}")
    exporter.until(lambda found: found.value("gpu_devices"))
    fresh = tmp_path / "new"
    fresh.write_text('{"log_level": "info", "log_format": "json"}')
    fresh.replace(file)
    assert exporter.process.stderr
    line = exporter.process.stderr.readline()
    exporter.end()

    assert json.loads(line)["message"] == "New settings: applied without a restart."


UNCAUGHT = """
import sys, threading, warnings
from exporter import logging_setup
logging_setup.configure("info", sys.argv[1])

class Bad:
    def __del__(self):
        fails()

def fails():
    raise ValueError("http://me:{secret}@h/ is\\nno address")

thread = threading.Thread(target=fails, name="looks")
thread.start()
thread.join()
Bad()
warnings.warn("http://me:{secret}@h/ is old")
fails()
"""


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_not_caught_is_one_record_each_with_its_traceback(form: str) -> None:
    code = UNCAUGHT.replace("{secret}", SECRET)
    done = subprocess.run(
        [sys.executable, "-c", code, form], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    in_thread, ignored, warning, in_main = records(done.stderr)

    assert done.returncode == 1
    assert SECRET not in done.stderr
    assert "Uncaught exception in thread looks" in in_thread["message"]
    assert "Bad.__del__" in ignored["message"]
    assert (warning["level"], warning["logger"]) == ("WARN", "py.warnings")
    for each in (in_thread, ignored, in_main):
        assert each["level"] == "ERROR"
        assert each["exception"].startswith("Traceback (most recent call last):")
        assert "in fails" in each["exception"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "text",
    ["", "plain", 'a "b" = \\c', "two\nlines\r\u2028", "\x1b[2Jü\x9b", os.fsdecode(b"a\xff"), "100 %s"],
)
def test_a_message_and_a_field_of_any_signs_stay_in_their_line(form: str, text: str) -> None:
    record = logging.makeLogRecord({"msg": text, "name": "x", "levelname": "INFO", "run": text})
    line = _Formatter(FORMATS[form]).format(record)

    assert line.isprintable()
    (found,) = records(line)
    assert found["message"] == found["run"]
    if text.isprintable() or form == "json":
        assert found["message"] == text


@pytest.mark.parametrize("flag", ["--log.level=loud", "--log.format=xml"])
def test_an_unknown_level_or_format_is_refused_with_those_that_there_are(flag: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "exporter.gpu", flag],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert re.search(r"argument --log\.\w+: invalid choice: '\w+' \(choose from ", done.stderr)

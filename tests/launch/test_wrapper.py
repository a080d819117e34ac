"""A wrapped program behaves as without the wrapper, and nothing of it outlives it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from exporter.runs.files import launch
from stepwatch.launch.wrapper import DRAIN_SECONDS
from tests.real.ending import ended
from tests.real.waiting import eventually

OTHERWISE = "Fix: wait for its end, or choose another --name."
RUN = (sys.executable, "-m", "stepwatch", "run")


def wrapped(runs: Path, *command: str, name: str = "a") -> list[str]:
    return [*RUN, "--runs", str(runs), "--name", name, "--", *command]


def called(runs: Path, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(wrapped(runs, *command), input=text, capture_output=True, text=True, check=False)


def record(log: Path) -> launch.Launch:
    found = launch.read(log)
    assert found is not None
    return found


@pytest.fixture(name="started")
def _started(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Wrappers that a test started; what is left of them is ended."""
    with ended() as started:
        yield started


def logged(log: Path) -> bytes:
    return log.read_bytes() if log.exists() else b""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except FileNotFoundError:
        return True


def number(file: Path) -> int:
    eventually(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


def test_output_goes_where_it_would_have_gone_and_into_the_log(tmp_path: Path) -> None:
    done = called(tmp_path, "sh", "-c", "cat; echo step 1; echo warning >&2; printf end", text="in\n")

    assert (done.stdout, done.stderr, done.returncode) == ("in\nstep 1\nend", "warning\n", 0)
    assert sorted((tmp_path / "a.log").read_text().splitlines()) == ["end", "in", "step 1", "warning"]


def test_streams_that_go_to_one_place_keep_their_order(tmp_path: Path) -> None:
    both = "for i in 1 2 3; do printf o$i; printf e$i >&2; done"
    done = subprocess.run(
        wrapped(tmp_path, "sh", "-c", both), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )

    assert done.stdout == (tmp_path / "a.log").read_bytes() == b"o1e1o2e2o3e3"


def test_a_line_of_one_stream_is_never_broken_by_another(tmp_path: Path) -> None:
    bars = """
import sys, time
for n in range(50):
    print(n, "x" * 50, end="", flush=True)
    sys.stderr.write("bar\\r")
    time.sleep(0.001)
    print("y")
"""
    called(tmp_path, sys.executable, "-c", bars)

    lines = (tmp_path / "a.log").read_bytes().replace(b"bar\r", b"").decode().splitlines()
    assert lines == [f"{n} {'x' * 50}y" for n in range(50)]


def test_a_name_may_lie_in_folders_but_not_outside(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    subprocess.run(wrapped(runs, "echo", "1", name="ppo/gsm8k"), check=True, capture_output=True)
    refused = subprocess.run(wrapped(runs, "true", name="../x"), capture_output=True, text=True, check=False)

    assert (runs / "ppo/gsm8k.log").read_text() == "1\n"
    assert (refused.returncode, list(tmp_path.iterdir())) == (2, [runs])
    assert refused.stderr.startswith("--name ../x: leads out of ")


@pytest.mark.parametrize("code", [0, 1, 3, 137, 255])
def test_the_exit_code_is_the_trainers_and_is_noted(tmp_path: Path, code: int) -> None:
    assert called(tmp_path, "sh", "-c", f"exit {code}").returncode == code

    found = record(tmp_path / "a.log")
    assert (found.exit_code, found.signal, found.attempt) == (code, "", 1)
    assert found.state == ("failed" if code else "finished")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV", "SIGINT"])
def test_a_signal_that_ends_the_trainer_ends_the_wrapper_and_is_noted(tmp_path: Path, name: str) -> None:
    done = called(tmp_path, "sh", "-c", f"kill -{name.removeprefix('SIG')} $$")

    assert done.returncode == -signal.Signals[name]
    found = record(tmp_path / "a.log")
    assert (found.signal, found.exit_code, found.cause) == (name, None, name)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"])
def test_signals_reach_the_trainer(tmp_path: Path, started: list[subprocess.Popen[bytes]], name: str) -> None:
    ready = tmp_path / "ready"
    trap = f"trap 'echo caught; exit 7' {name.removeprefix('SIG')}"
    wait = f"echo $$ > {ready}; while :; do sleep .1; done"
    started.append(subprocess.Popen(wrapped(tmp_path, "sh", "-c", f"{trap}; {wait}"), stdout=subprocess.PIPE))
    number(ready)
    started[0].send_signal(signal.Signals[name])

    assert started[0].communicate(timeout=60)[0] == b"caught\n"
    assert started[0].returncode == 7


def test_nohup_stays_in_force(tmp_path: Path) -> None:
    show = "grep SigIgn /proc/self/status"
    plain = subprocess.run(["nohup", "sh", "-c", show], capture_output=True, text=True, check=True).stdout
    own = subprocess.run(
        ["nohup", *wrapped(tmp_path, "sh", "-c", show)], capture_output=True, text=True, check=True
    ).stdout

    hangup = 1 << (signal.SIGHUP - 1)
    assert int(plain.split()[1], 16) & int(own.split()[1], 16) & hangup


def test_a_program_that_cannot_be_started_leaves_no_run(tmp_path: Path) -> None:
    done = called(tmp_path, "no-such-trainer")

    assert done.returncode == 2
    assert done.stderr == (
        "no-such-trainer cannot be started: No such file or directory. Fix: check the command after --.\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_two_wrappers_never_write_one_log(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    ready = tmp_path / "ready"
    started.append(subprocess.Popen(wrapped(tmp_path, "sh", "-c", f"echo 1 > {ready}; sleep 100")))
    number(ready)
    done = called(tmp_path, "true")

    assert (done.returncode, done.stderr) == (
        2,
        f"{tmp_path}/a.log is written by another `stepwatch run`. {OTHERWISE}\n",
    )
    assert record(tmp_path / "a.log").state == "running"


def test_another_start_under_the_same_name_is_the_next_attempt(tmp_path: Path) -> None:
    called(tmp_path, "sh", "-c", "echo one; exit 1")
    called(tmp_path, "sh", "-c", "echo two")

    assert (tmp_path / "a.log").read_text() == "one\ntwo\n"
    found = record(tmp_path / "a.log")
    assert (found.attempt, found.state) == (2, "finished")


def test_secrets_in_the_command_are_masked(tmp_path: Path) -> None:
    token = "hf_" + "a1B2" * 8
    called(tmp_path, "true", f"--token={token}", token)

    written = (tmp_path / "a.log.launch").read_text()
    assert token not in written
    assert json.loads(written.splitlines()[0])["command"] == ["true", "--token=(secret)", "(secret)"]


# Killed

LEAVES = """
import os, subprocess, sys, time
folder = sys.argv[1]
daemon = subprocess.Popen(["sleep", "1000"], start_new_session=True)
forked = os.fork()
if not forked:
    os.setsid()
    if os.fork():
        os._exit(0)
    print(os.getpid(), file=open(f"{folder}/orphan", "w"))
    time.sleep(1000)
print(daemon.pid, file=open(f"{folder}/daemon", "w"))
print(os.getpid(), file=open(f"{folder}/trainer", "w"))
time.sleep(1000)
"""


@pytest.fixture(name="left")
def _left(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> list[int]:
    """A wrapped trainer that has a daemon and an orphan of its own: their process ids, and the trainer's."""
    started.append(subprocess.Popen(wrapped(tmp_path, sys.executable, "-c", LEAVES, str(tmp_path))))
    return [number(tmp_path / each) for each in ("daemon", "orphan", "trainer")]


def test_a_killed_wrapper_leaves_no_process_and_its_run_shows_why(
    tmp_path: Path, started: list[subprocess.Popen[bytes]], left: list[int]
) -> None:
    started[0].kill()

    eventually(lambda: all(map(gone, left)))
    eventually(lambda: record(tmp_path / "a.log").state == "failed")
    assert record(tmp_path / "a.log").cause == "wrapper killed"


def test_a_killed_keeper_leaves_no_process_either(
    tmp_path: Path, started: list[subprocess.Popen[bytes]], left: list[int]
) -> None:
    stat = Path(f"/proc/{left[-1]}/stat").read_bytes().rpartition(b")")[2].split()
    os.kill(int(stat[1]), signal.SIGKILL)

    assert started[0].wait(60) != 0
    assert all(map(gone, left))
    assert record(tmp_path / "a.log").state == "failed"


def test_what_a_trainer_leaves_behind_on_purpose_lives_on(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    daemon = f"setsid sleep 1000 > /dev/null 2>&1 & echo $! > {tmp_path}/daemon"
    assert called(tmp_path, "sh", "-c", daemon).returncode == 0

    pid = number(tmp_path / "daemon")
    assert not gone(pid)
    os.kill(pid, signal.SIGKILL)


# On a terminal


def on_terminal(command: list[str], size: tuple[int, int] = (31, 97)) -> tuple[subprocess.Popen[bytes], int]:
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    process = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    )
    os.close(terminal)
    return process, master


def read_all(master: int) -> bytes:
    found = b""
    with suppress(OSError):
        while block := os.read(master, 65536):
            found += block
    os.close(master)
    return found


SHOW = """
import os, sys
print(sys.stdout.isatty(), sys.stdin.isatty(), os.get_terminal_size())
print("\\x1b[31mred\\r10%\\r20%")
"""
ASK = """
import sys
print("name?", flush=True)
print("hello", input(), flush=True)
try:
    sys.stdin.read()
except KeyboardInterrupt:
    sys.exit(9)
"""
WATCH = """
import os, signal, time
signal.signal(signal.SIGWINCH, lambda *_: print(os.get_terminal_size().columns, flush=True))
print("ready", flush=True)
while True:
    time.sleep(0.1)
"""


def test_on_a_terminal_a_program_writes_what_it_writes_without_the_wrapper(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHOW]
    plain, wrapper = on_terminal(command), on_terminal(wrapped(tmp_path, *command))

    shown = read_all(plain[1])
    assert read_all(wrapper[1]) == shown
    assert b"True True os.terminal_size(columns=97, lines=31)\r\n" in shown
    assert (tmp_path / "a.log").read_bytes() == shown.replace(b"\r\n", b"\n")
    assert (plain[0].wait(), wrapper[0].wait()) == (0, 0)


def test_keys_reach_the_trainer_and_the_terminal_is_given_back_as_it_was(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    process, master = on_terminal(wrapped(tmp_path, sys.executable, "-c", ASK))
    started.append(process)
    log = tmp_path / "a.log"
    before = termios.tcgetattr(master)
    eventually(lambda: b"name?" in logged(log))
    os.write(master, b"ada\n")
    eventually(lambda: b"hello ada" in log.read_bytes())
    os.write(master, b"\x03")

    assert process.wait(30) == 9
    assert termios.tcgetattr(master) == before
    os.close(master)


def test_a_new_size_of_the_terminal_reaches_the_trainer(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    process, master = on_terminal(wrapped(tmp_path, sys.executable, "-c", WATCH))
    started.append(process)
    log = tmp_path / "a.log"
    eventually(lambda: b"ready" in logged(log))
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 133, 0, 0))
    process.send_signal(signal.SIGWINCH)  # the kernel tells the session's foreground, and there is none here

    eventually(lambda: re.search(rb"^133$", log.read_bytes(), re.MULTILINE))
    os.close(master)


def test_a_reader_that_leaves_ends_no_training(tmp_path: Path) -> None:
    command = " ".join(wrapped(tmp_path, "seq", "200000"))
    subprocess.run(["bash", "-c", f"{command} | head -1"], check=True, capture_output=True)

    assert (tmp_path / "a.log").read_text().endswith("199999\n200000\n")


FLOOD = """
import signal, sys
if "orderly" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
try:
    while True:
        print("x" * 100, flush=True)
finally:
    print("saved", flush=True)
"""


def stands_still(log: Path) -> bool:
    """Whether a log has grown and grows no more."""
    before = logged(log)
    time.sleep(0.5)
    return logged(log) == before != b""


@pytest.mark.parametrize("reader", ["pipe", "terminal"])
@pytest.mark.parametrize("asked", ["signal", "request"])
@pytest.mark.parametrize("how", ["at once", "orderly"])
def test_a_reader_that_does_not_read_keeps_the_trainer_waiting_and_the_wrapper_listening(
    tmp_path: Path, started: list[subprocess.Popen[bytes]], reader: str, asked: str, how: str
) -> None:
    log = tmp_path / "a.log"
    master, output = os.pipe() if reader == "pipe" else pty.openpty()
    command = wrapped(tmp_path, sys.executable, "-c", FLOOD, how)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output)
    started.append(process)
    eventually(lambda: stands_still(log))
    assert record(log).state == "running"
    if asked == "signal":
        process.send_signal(signal.SIGTERM)
    else:
        launch.ask(log, launch.Request("x", "stop", 1, "stepwatch", "KLExplosion"))

    assert process.wait(30) == (7 if how == "orderly" else -signal.SIGTERM)
    assert record(log).state == ("failed" if asked == "signal" else "stopped")
    assert log.read_bytes().endswith(b"saved\n") is (how == "orderly")
    for each in (master, output):
        os.close(each)


def test_a_trainer_that_ended_leaves_all_of_its_output_to_a_reader_that_comes_late(tmp_path: Path) -> None:
    process = subprocess.Popen(wrapped(tmp_path, "seq", "40000"), stdout=subprocess.PIPE)
    assert process.stdout
    with process.stdout as reader:
        eventually(lambda: stands_still(tmp_path / "a.log"))
        time.sleep(2 * DRAIN_SECONDS)
        shown = reader.read()

    assert process.wait() == 0
    assert shown == (tmp_path / "a.log").read_bytes()
    assert shown.endswith(b"\n40000\n")


def test_a_log_that_cannot_be_written_any_more_ends_no_training(tmp_path: Path) -> None:
    (tmp_path / "a.log").symlink_to("/dev/full")
    done = called(tmp_path, "sh", "-c", "echo one; sleep 0.2; echo two")

    assert (done.returncode, done.stdout) == (0, "one\ntwo\n")
    assert done.stderr.count("No space left on device. The training continues.") == 1

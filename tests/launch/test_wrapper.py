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
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from exporter.runs.files import launch
from stepwatch.launch.wrapper import DRAIN_SECONDS, default_name
from tests.real.ending import Started, ended
from tests.real.waiting import eventually


def wrapped(runs: Path, *command: str, name: str = "a") -> list[str]:
    return [sys.executable, "-m", "stepwatch", "run", "--runs", str(runs), "--name", name, "--", *command]


def called(runs: Path, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(wrapped(runs, *command), input=text, capture_output=True, text=True, check=False)


def record(log: Path) -> launch.Launch:
    found = launch.read(log)
    assert found is not None
    return found


@pytest.fixture(name="started")
def _started() -> Iterator[Started]:
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
    both = wrapped(tmp_path, "sh", "-c", "for i in 1 2 3; do printf o$i; printf e$i >&2; done", name="b")
    shown = subprocess.run(both, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True).stdout
    assert shown == (tmp_path / "b.log").read_bytes() == b"o1e1o2e2o3e3"


BARS = """
import sys, time
for n in range(50):
    print(n, "x" * 50, end="", flush=True)
    sys.stderr.write("bar\\r")
    time.sleep(0.001)
    print("y")
"""


def test_a_line_of_one_stream_is_never_broken_by_another(tmp_path: Path) -> None:
    called(tmp_path, sys.executable, "-c", BARS)

    lines = (tmp_path / "a.log").read_bytes().replace(b"bar\r", b"").decode().splitlines()
    assert lines == [f"{n} {'x' * 50}y" for n in range(50)]


@pytest.mark.parametrize("end", ["0", "3", "255", "KILL", "TERM", "SEGV", "INT"])
def test_the_wrapper_ends_as_the_trainer_does_and_notes_it(tmp_path: Path, end: str) -> None:
    script = f"exit {end}" if end.isdigit() else f"kill -{end} $$"
    code = called(tmp_path, "sh", "-c", script).returncode

    found = record(tmp_path / "a.log")
    if end.isdigit():
        assert (code, found.exit_code, found.signal, found.attempt) == (int(end), int(end), "", 1)
        assert found.state == ("failed" if code else "finished")
    else:
        assert (code, found.cause) == (-signal.Signals[f"SIG{end}"], f"SIG{end}")
        assert (found.signal, found.exit_code, found.state) == (f"SIG{end}", None, "failed")


@pytest.mark.parametrize("name", ["TERM", "INT", "USR1", "HUP"])
def test_signals_reach_the_trainer(tmp_path: Path, started: Started, name: str) -> None:
    wait = f"echo $$ > {tmp_path}/ready; while :; do sleep .1; done"
    script = f"trap 'echo caught; exit 7' {name}; {wait}"
    started.append(subprocess.Popen(wrapped(tmp_path, "sh", "-c", script), stdout=subprocess.PIPE))
    number(tmp_path / "ready")
    started[0].send_signal(signal.Signals[f"SIG{name}"])

    assert started[0].communicate(timeout=60)[0] == b"caught\n"
    assert started[0].returncode == 7


def test_nohup_stays_in_force(tmp_path: Path) -> None:
    command = ["nohup", *wrapped(tmp_path, "grep", "SigIgn", "/proc/self/status")]
    ignored = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[1]

    assert int(ignored, 16) & (1 << (signal.SIGHUP - 1))


def test_what_cannot_be_run_is_refused_and_leaves_no_run(tmp_path: Path, started: Started) -> None:
    done = called(tmp_path / "runs", "no-such-trainer")
    text = "no-such-trainer cannot be started: No such file or directory. Fix: check the command after --.\n"
    assert (done.returncode, done.stderr, list((tmp_path / "runs").iterdir())) == (2, text, [])
    command = wrapped(tmp_path / "runs", "true", name="../x")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [tmp_path / "runs"])
    assert done.stderr.startswith("--name ../x: leads out of ")

    started.append(subprocess.Popen(wrapped(tmp_path, "sh", "-c", f"echo 1 > {tmp_path}/ready; sleep 100")))
    number(tmp_path / "ready")
    done = called(tmp_path, "true")
    text = "Fix: wait for its end, or choose another --name."
    assert done.returncode == 2
    assert done.stderr == f"{tmp_path}/a.log is written by another `stepwatch run`. {text}\n"
    assert record(tmp_path / "a.log").state == "running"


def test_another_start_under_the_same_name_is_the_next_attempt_with_secrets_masked(tmp_path: Path) -> None:
    token = "hf_" + "a1B2" * 8
    called(tmp_path, "sh", "-c", "echo one; exit 1")
    called(tmp_path, "echo", f"--token={token}")

    assert (tmp_path / "a.log").read_text() == f"one\n--token={token}\n"
    assert (record(tmp_path / "a.log").attempt, record(tmp_path / "a.log").state) == (2, "finished")
    written = (tmp_path / "a.log.launch").read_text()
    assert token not in written
    assert json.loads(written.splitlines()[2])["command"] == ["echo", "--token=(secret)"]


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


@pytest.mark.parametrize("process", ["the wrapper", "the one below it"])
def test_a_killed_wrapper_leaves_no_process_and_its_run_shows_why(
    tmp_path: Path, started: Started, process: str
) -> None:
    started.append(subprocess.Popen(wrapped(tmp_path, sys.executable, "-c", LEAVES, str(tmp_path))))
    left = [number(tmp_path / each) for each in ("daemon", "orphan", "trainer")]
    above = int(Path(f"/proc/{left[-1]}/stat").read_bytes().rpartition(b")")[2].split()[1])
    os.kill(started[0].pid if process == "the wrapper" else above, signal.SIGKILL)

    assert started[0].wait(60) == -signal.SIGKILL
    eventually(lambda: all(map(gone, [*left, above])))
    assert (record(tmp_path / "a.log").state, record(tmp_path / "a.log").cause) == (
        "failed",
        "wrapper killed",
    )


def test_what_a_trainer_leaves_behind_on_purpose_lives_on(tmp_path: Path) -> None:
    daemon = f"setsid sleep 1000 > /dev/null 2>&1 & echo $! > {tmp_path}/daemon"
    assert called(tmp_path, "sh", "-c", daemon).returncode == 0

    pid = number(tmp_path / "daemon")
    assert not gone(pid)
    os.kill(pid, signal.SIGKILL)


# On a terminal


def on_terminal(command: list[str]) -> tuple[subprocess.Popen[bytes], int]:
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 0, 0))
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
import os, signal, sys
signal.signal(signal.SIGWINCH, lambda *_: print(os.get_terminal_size().columns, flush=True))
print("name?", flush=True)
print("hello", input(), flush=True)
try:
    sys.stdin.read()
except KeyboardInterrupt:
    sys.exit(9)
"""


def test_on_a_terminal_a_program_writes_what_it_writes_without_the_wrapper(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHOW]
    plain, wrapper = on_terminal(command), on_terminal(wrapped(tmp_path, *command))

    shown = read_all(plain[1])
    assert read_all(wrapper[1]) == shown
    assert b"True True os.terminal_size(columns=97, lines=31)\r\n" in shown
    assert (tmp_path / "a.log").read_bytes() == shown.replace(b"\r\n", b"\n")
    assert (plain[0].wait(), wrapper[0].wait()) == (0, 0)


def test_keys_and_sizes_reach_the_trainer_and_the_terminal_is_given_back_as_it_was(
    tmp_path: Path, started: Started
) -> None:
    process, master = on_terminal(wrapped(tmp_path, sys.executable, "-c", ASK))
    started.append(process)
    log, before = tmp_path / "a.log", termios.tcgetattr(master)
    eventually(lambda: b"name?" in logged(log))
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 133, 0, 0))
    process.send_signal(signal.SIGWINCH)  # the kernel tells the session's foreground, and there is none here
    eventually(lambda: re.search(rb"^133$", log.read_bytes(), re.MULTILINE))
    os.write(master, b"ada\n")
    eventually(lambda: b"hello ada" in log.read_bytes())
    os.write(master, b"\x03")

    assert process.wait(30) == 9
    assert termios.tcgetattr(master) == before
    os.close(master)


def test_in_the_background_of_a_shell_it_runs_and_leaves_the_keys_to_the_shell(tmp_path: Path) -> None:
    command = " ".join(wrapped(tmp_path, "sh", "-c", "'read line; echo got $line'"))
    process, master = on_terminal(
        ["setsid", "--ctty", "bash", "-ic", f"{command} & read line; echo shell $line; wait"]
    )
    eventually(lambda: b"got" in logged(tmp_path / "a.log"))
    os.write(master, b"mine\n")

    assert b"shell mine" in read_all(master)
    assert (process.wait(60), logged(tmp_path / "a.log")) == (0, b"got\n")


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


@pytest.mark.parametrize("reader", [os.pipe, pty.openpty])
@pytest.mark.parametrize(("asked", "how"), [("signal", "orderly"), ("request", "at once")])
def test_a_reader_that_does_not_read_keeps_the_trainer_waiting_and_the_wrapper_listening(
    tmp_path: Path, started: Started, reader: Callable[[], tuple[int, int]], asked: str, how: str
) -> None:
    log = tmp_path / "a.log"
    master, output = reader()
    command = wrapped(tmp_path, sys.executable, "-c", FLOOD, how)
    started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output))
    eventually(lambda: stands_still(log))
    assert record(log).state == "running"
    if asked == "signal":
        started[0].send_signal(signal.SIGTERM)
    else:
        launch.ask(log, launch.Request("x", "stop", 1, "stepwatch", "KLExplosion"))

    assert started[0].wait(30) == (7 if how == "orderly" else -signal.SIGTERM)
    assert record(log).state == ("failed" if asked == "signal" else "stopped")
    assert log.read_bytes().endswith(b"saved\n") is (how == "orderly")
    for each in (master, output):
        os.close(each)


def test_a_trainer_that_ended_leaves_all_of_its_output_to_a_reader_that_comes_late(tmp_path: Path) -> None:
    with subprocess.Popen(wrapped(tmp_path, "seq", "40000"), stdout=subprocess.PIPE) as process:
        assert process.stdout
        eventually(lambda: stands_still(tmp_path / "a.log"))
        time.sleep(2 * DRAIN_SECONDS)
        shown = process.stdout.read()

    assert (process.returncode, shown) == (0, (tmp_path / "a.log").read_bytes())
    assert shown.endswith(b"\n40000\n")


def test_a_log_that_cannot_be_written_any_more_ends_no_training(tmp_path: Path) -> None:
    (tmp_path / "a.log").symlink_to("/dev/full")
    done = called(tmp_path, "sh", "-c", "echo one; sleep 0.2; echo two")

    assert (done.returncode, done.stdout) == (0, "one\ntwo\n")
    assert done.stderr.count("No space left on device. The training continues.") == 1


RAY = """#!/bin/sh
# Runs the job that is submitted, shows that it was stopped, and calls that a success, as Ray does.
echo "$@" >> $(dirname $0)/asked
if [ $2 = stop ]; then kill $(cat $(dirname $0)/job); exit; fi
while [ $1 != -- ]; do shift; done
shift; "$@" & echo $! > $(dirname $0)/job
wait $!; [ $? = 143 ] || exit 1
"""


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL", "request"])
def test_a_job_of_ray_ends_with_its_wrapper(tmp_path: Path, started: Started, how: str) -> None:
    (tmp_path / "ray").write_text(RAY)
    (tmp_path / "ray").chmod(0o755)
    command = wrapped(tmp_path, "sh", "-c", "echo 1; exec sleep 1000")
    command[-4:-4] = ["--ray", "http://head:8265", "--working-dir", "."]
    path = f"{tmp_path}:{os.environ['PATH']}"
    started.append(subprocess.Popen(command, env={**os.environ, "PATH": path}))
    log = tmp_path / "a.log"
    eventually(lambda: logged(log) == b"1\n")
    process = number(tmp_path / "job")
    if how == "request":
        launch.ask(log, launch.Request("x", "kill", 1, "stepwatch", "KLExplosion"))
    else:
        started[0].send_signal(signal.Signals[how])

    assert started[0].wait(60) == (0 if how == "request" else -signal.Signals[how])
    eventually(lambda: record(log).state != "running")
    ends = {"SIGTERM": ("failed", "SIGTERM"), "SIGKILL": ("failed", "wrapper killed")}
    stopped = ("stopped", "killed by stepwatch: KLExplosion")
    assert (record(log).state, record(log).cause) == ends.get(how, stopped)
    eventually(lambda: gone(process) and (tmp_path / "asked").read_text().count("\n") == 2)
    submitted, stop = (line.split() for line in (tmp_path / "asked").read_text().splitlines())
    job = submitted[5]
    assert (
        submitted[:8]
        == f"job submit --address http://head:8265 --submission-id {job} --working-dir .".split()
    )
    assert stop == ["job", "stop", "--address", "http://head:8265", job]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train_grpo.py --lr 1", "train_grpo"),
        ("python3 -u -m verl.trainer.main_ppo data.x=y.py", "main_ppo"),
        ("torchrun --nproc_per_node 8 -m trl.scripts.grpo", "grpo"),
        ("python -m torch.distributed.run --nnodes 2 train.py", "train"),
        ("accelerate launch --config_file zero3.yaml sft.py", "sft"),
        ("uv run --with trl -- python rl/train.py", "train"),
        ("env A=1 bash examples/run_gsm8k.sh", "run_gsm8k"),
        ("/opt/trainer/bin/train", "train"),
        ("python -m", "python"),
    ],
)
def test_a_run_is_called_after_its_script_or_module(command: str, name: str) -> None:
    assert default_name(command.split()) == name

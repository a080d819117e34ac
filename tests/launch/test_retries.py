"""`stepwatch run --retry`: what was configured happens, once, and nothing else does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from exporter.runs.files import launch
from stepwatch.config.retry import RetryPolicy
from stepwatch.launch.record import End
from stepwatch.launch.retries import Retries, replaced, resuming
from tests.launch import saving
from tests.real.disk import small_disk
from tests.real.ending import ended
from tests.real.waiting import eventually
from tests.runs.lines import console, measured

TRAINER = '''
"""Logs steps from its checkpoint on, and fails as each line of the file `plan` says: step, then code."""
import os, sys, time
folder = sys.argv[1]
with open(f"{folder}/starts", "a") as file:
    print(*sys.argv[2:], file=file)
attempt = len(open(f"{folder}/starts").readlines())
plan = open(f"{folder}/plan").read().splitlines()
last, code = (plan[attempt - 1] if attempt <= len(plan) else "9 sys.exit(0)").split(" ", 1)
step = int(open(f"{folder}/checkpoint").read()) if os.path.exists(f"{folder}/checkpoint") else 0
lines = open(f"{folder}/steps").read().splitlines(keepends=True)
for step in range(step + 1, int(last) + 1):
    sys.stdout.write(lines[step - 1])
    sys.stdout.flush()
    if step % 2 == 0:
        open(f"{folder}/checkpoint", "w").write(str(step))
exec(code.replace("\\\\n", "\\n"))
'''
OOM = (
    "raise type('OutOfMemoryError', (RuntimeError,), {'__module__': 'torch'})"
    "('CUDA out of memory. Tried to allocate 2.00 GiB.')"
)
NETWORK = "import socket; socket.create_connection(('127.0.0.1', 1))"
HANG = "import time; time.sleep(1000)"
RETRY = {"failures": ["network"]}
SMALLER = {"failures": ["cuda_oom"], "replace": {"batch_size=*": "/2", "--lr *": "*0.5"}}
LONG = {"interval": "1h"}


class Trial:
    """A wrapped trainer that fails as planned, under a policy."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "runs/a.log"
        (folder / "steps").write_text("".join(console(step, measured(step)) for step in range(1, 20)))

    def plan(self, *attempts: str) -> None:
        (self.folder / "plan").write_text("".join(each.replace("\n", "\\n") + "\n" for each in attempts))

    def command(
        self, *rules: object, options: Sequence[str] = ("--retry", "p"), **policy: object
    ) -> list[str]:
        config = {"retry": [{"name": "p", "rules": rules, "interval": "10ms", **policy}]}
        (self.folder / "config.yaml").write_text(json.dumps(config))
        places = ["--config", str(self.folder / "config.yaml"), "--runs", str(self.folder / "runs")]
        run = [sys.executable, "-m", "stepwatch", "run", *places, "--name", "a", *options, "--"]
        return [*run, sys.executable, "-c", TRAINER, str(self.folder), "batch_size=16", "--lr", "1e-6"]

    def run(self, *rules: object, **policy: object) -> tuple[int, list[str]]:
        """Run it to its end; returns the exit code and what the wrapper said."""
        command = self.command(*rules, **policy)  # type: ignore[arg-type]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stderr.splitlines() if line.startswith("stepwatch: ")]
        return done.returncode, [line.partition(": ")[2] for line in lines]

    @property
    def starts(self) -> list[str]:
        """The arguments of each start."""
        return (self.folder / "starts").read_text().splitlines()

    @property
    def last(self) -> launch.Launch:
        found = launch.read(self.log)
        assert found is not None
        return found

    def logs_step_3(self, times: int = 1) -> None:
        """Wait until so many attempts have."""
        eventually(lambda: self.log.exists() and self.log.read_bytes().count(b"step:3") == times)


@pytest.fixture(name="trial")
def _trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_a_trainer_that_lost_the_network_is_started_again_and_resumes(trial: Trial) -> None:
    trial.plan(f"5 print('x', end='', flush=True); {NETWORK}")

    text = "attempt 1 ended after step 5, by network error. Retry 1 of 3 in 0.01 s."
    assert trial.run(RETRY) == (0, [text])
    assert (len(trial.starts), trial.log.read_text().splitlines().count(f"stepwatch: {text}")) == (2, 1)
    assert (trial.last.state, trial.last.attempt, trial.last.retries) == ("finished", 2, 1)
    assert trial.last.retry
    assert trial.last.retry.text == "retry 1 of 3 after network error"


def test_out_of_memory_is_retried_with_the_changed_argument_each_time_smaller(trial: Trial) -> None:
    trial.plan(f"3 {OOM}", f"3 {OOM}")
    code, said = trial.run(SMALLER)

    assert (code, trial.starts) == (0, [
        "batch_size=16 --lr 1e-6",
        "batch_size=8 --lr 5e-07",
        "batch_size=4 --lr 2.5e-07",
    ])  # fmt: skip
    changes = "Retry 1 of 3 in 0.01 s, with batch_size: 16 -> 8; --lr: 1e-6 -> 5e-07."
    assert said[0] == f"attempt 1 ended after step 3, by CUDA out of memory. {changes}"
    ends = map(json.loads, Path(f"{trial.log}.launch").read_text().splitlines())
    assert [end["failure"] for end in ends if "ended" in end] == [*["CUDA out of memory"] * 2, ""]


KL = {"alerts": ["KL*"]}
AFTER = "after step 3, by CUDA out of memory"
ENDS: dict[str, tuple[list[str], list[object], dict[str, object], int, str]] = {
    "the same failure at the same step with the same arguments, again": (
        [f"5 {NETWORK}"] * 9, [RETRY], {"max_retries": 9}, 2,
        "no retry: these arguments failed after step 5 before, by network error",
    ),
    "the same without steps": (
        [f"0 {NETWORK}"] * 9, [RETRY], {"max_retries": 9}, 2,
        "no retry: these arguments failed before the first step before, by network error",
    ),
    "max_retries, with waits that double": (
        [f"{step} {NETWORK}" for step in range(3, 12)], [RETRY],
        {"max_retries": 4, "interval": "20ms"}, 5,
        "no further retry: policy p allows 4 (max_retries), and all were used",
    ),
    "no rule": (["3 sys.exit(3)"], [RETRY, KL], {}, 1, "no retry: policy p has no rule for: exit code 3"),
    "a rule to stop": (
        ["3 assert not step"], [{"failures": ["assertion"], "action": "stop"}, {}], {}, 1,
        "no retry: policy p has a rule to stop after: assertion failed",
    ),
    "another exit code": (
        ["3 os.kill(os.getpid(), 9)"], [{"exit_codes": [1]}], {}, 1,
        "no retry: policy p has no rule for: SIGKILL",
    ),
    "no such argument": (
        [f"3 {OOM}"], [{"replace": {"other=*": "/2"}}], {}, 1,
        "no retry: policy p cannot change other=* further",
    ),
    "a dry run": (
        [f"3 {OOM}"], [{"replace": {"batch_size=*": "/2"}}], {"options": ["--retry", "p", "--dry-run"]}, 1,
        f"attempt 1 ended {AFTER}. Dry run: retry 1 of 3 in 0.01 s, with batch_size: 16 -> 8.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_what_must_not_be_retried_is_not(trial: Trial, name: str) -> None:
    plan, rules, policy, starts, text = ENDS[name]
    trial.plan(*plan)
    code, said = trial.run(*rules, **policy)

    assert code != 0
    assert (said[-1], len(trial.starts)) == (text, starts)
    assert (trial.last.state, trial.last.waits) == ("failed", False)
    if "double" in name:
        waits = [line.rpartition(" in ")[2] for line in said if "Retry " in line]
        assert waits == ["0.02 s.", "0.04 s.", "0.08 s.", "0.16 s."]


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("sys.exit(3)", {"exit_codes": [3, 4]}),
        ("os.kill(os.getpid(), 9)", {"signals": ["SIGKILL"]}),
        ("sys.exit(1)", {}),
        ("x = bytearray(1 << 60)", {"failures": ["host_oom"]}),
    ],
)
def test_conditions_on_exit_code_signal_and_failure_class(trial: Trial, code: str, rule: object) -> None:
    trial.plan(f"3 {code}")

    assert (trial.run(rule)[0], len(trial.starts)) == (0, 2)


def test_waits_double_up_to_ten_minutes_or_the_first_wait() -> None:
    for interval, waits in (("4m", [240, 480, 600]), ("1h", [3600, 3600, 3600])):
        policy = RetryPolicy.model_validate({"name": "p", "rules": [{}], "interval": interval})
        retries = Retries(policy, ["trainer"], dry=True)
        texts = [str(retries.after(End(256, step=step))) for step in (1, 2, 3)]

        assert [f" in {wait} s." in text for wait, text in zip(waits, texts, strict=True)] == [True] * 3, (
            texts
        )


def test_without_a_policy_nothing_is_retried_and_the_class_is_noted(trial: Trial) -> None:
    trial.plan(f"3 {OOM}")

    assert trial.run(RETRY, options=[]) == (1, [])
    assert (trial.last.state, trial.last.cause, trial.last.attempt) == ("failed", "CUDA out of memory", 1)


UNKNOWN = "--retry q: no such policy."


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ["--retry", "q"],
            f"{UNKNOWN} Expected: p. Fix: add it to retry in config.yaml, see docs/running.md.",
        ),
        (["--retry", "P-"], "--retry P-: no such policy. Expected: p. Fix: did you mean p?"),
        (["--dry-run"], "--dry-run: no retry policy is given. Fix: name one with --retry."),
    ],
)
def test_a_policy_that_is_not_there_is_refused_before_anything_starts(
    trial: Trial, options: list[str], text: str
) -> None:
    command = trial.command(RETRY, options=options)
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (2, f"{text}\n")
    assert not (trial.folder / "starts").exists()


FILLS = (
    "f = open(f'{folder}/runs/model.pt', 'wb', buffering=0)\n"
    "while True: f.write(bytes(4096)) or sys.exit('no space was left, and no error either')"
)


def test_a_disk_that_is_full_with_its_log_on_it_is_a_failure_like_another(trial: Trial) -> None:
    with small_disk(trial.folder / "runs", "tmpfs"):
        trial.plan(f"3 {FILLS}", "9 os.remove(f'{folder}/runs/model.pt')")
        code, said = trial.run({"failures": ["disk_full"]})

    assert (code, len(trial.starts)) == (0, 2)
    assert said[-1].endswith(", by disk full. Retry 1 of 3 in 0.01 s.")


# Orders between attempts and during them


@pytest.fixture(name="start")
def _start(trial: Trial) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    with ended() as started:

        def start(*rules: object, **policy: object) -> subprocess.Popen[bytes]:
            started.append(subprocess.Popen(trial.command(*rules, **policy), stderr=subprocess.PIPE))  # type: ignore[arg-type]
            return started[-1]

        yield start


def ask(trial: Trial, why: str, attempt: int = 1) -> None:
    launch.ask(trial.log, launch.Request(f"{why}-stop", "stop", attempt, "stepwatch", why))


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "request", "SIGKILL"])
def test_an_order_ends_the_wait_at_once(
    trial: Trial, start: Callable[..., subprocess.Popen[bytes]], how: str
) -> None:
    trial.plan(f"3 {NETWORK}")
    process = start(RETRY, **LONG)
    eventually(lambda: launch.read(trial.log) and trial.last.waits)
    assert (trial.last.state, trial.last.cause) == ("running", "")
    if how == "request":
        ask(trial, "kill switch")
    else:
        process.send_signal(signal.Signals[how])

    _, said = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if how == "SIGKILL" else 1)
    assert how == "SIGKILL" or f"no retry: {how.replace('request', 'stopped by stepwatch')}".encode() in said
    stopped = ("stopped", "stopped by stepwatch: kill switch")
    eventually(lambda: trial.last.state != "running")
    assert (trial.last.state, trial.last.cause) == (
        stopped if how == "request" else ("failed", "network error")
    )
    assert len(trial.starts) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_trainer_that_the_user_ends_is_not_retried(
    trial: Trial, start: Callable[..., subprocess.Popen[bytes]], number: signal.Signals
) -> None:
    trial.plan(f"3 {HANG}")
    process = start({})
    trial.logs_step_3()
    process.send_signal(number)

    assert process.wait(60) != 0
    assert (len(trial.starts), trial.last.waits) == (1, False)


@pytest.mark.parametrize(("rule", "starts"), [(KL, 2), ({"alerts": ["RewardCollapse"]}, 1), ({}, 1)])
def test_a_stop_by_an_alert_is_retried_only_by_a_rule_that_names_it_and_only_once(
    trial: Trial, start: Callable[..., subprocess.Popen[bytes]], rule: object, starts: int
) -> None:
    trial.plan(*[f"3 {HANG}"] * 3)
    process = start(rule)
    for attempt in range(1, starts + 1):
        trial.logs_step_3(attempt)
        ask(trial, f"KLExplosion (3f0{attempt})", attempt)  # as the bridge names its actions
    process.wait(60)

    assert (len(trial.starts), trial.last.state) == (starts, "stopped")
    again = "these arguments failed after step 3 before, by stopped by stepwatch: KLExplosion (3f02)"
    other = "policy p has no rule for: stopped by stepwatch: KLExplosion (3f01)"
    assert trial.log.read_text().splitlines()[-1] == f"stepwatch: no retry: {again if starts == 2 else other}"


# Arguments


@pytest.mark.parametrize(
    ("command", "name", "value", "expected"),
    [
        ("a=512", "a=*", "/2", "a=256"),
        ("+a=7", "a=*", "/2", "+a=3"),
        ("a=1", "a=*", "/2", "a=1"),
        ("a=3 a.b=3", "a=*", "*0.5", "a=1 a.b=3"),
        ("a=1e-6", "a=*", "*0.1", "a=1e-07"),
        ("a=off", "a=*", "/2", "a=off"),
        ("a=off", "a=*", "on", "a=on"),
        ("--a 8", "--a=*", "/4", "--a 2"),
        ("--a=8", "--a *", "/4", "--a=2"),
        ("--a", "--a *", "/4", "--a"),
        ("a=x", "a=*", "/data/2", "a=/data/2"),
        ("a=0.5", "a=*", "/ 2", "a=0.25"),
    ],
)
def test_arguments_are_replaced(command: str, name: str, value: str, expected: str) -> None:
    words, changes = replaced(command.split(), {name: value})

    assert " ".join(words) == expected
    assert bool(changes) == (command != expected)


VERL = "python3 -m verl.trainer.main_ppo data.train_batch_size=512"
NEWEST = "--resume_from_checkpoint out/checkpoint-100"


@pytest.mark.parametrize(
    ("command", "trainer", "expected"),
    [
        (VERL, "auto", f"{VERL} trainer.resume_mode=auto"),
        (
            "python -m x actor_rollout_ref.lr=1",
            "auto",
            "python -m x actor_rollout_ref.lr=1 trainer.resume_mode=auto",
        ),
        (f"{VERL} trainer.resume_mode=off", "auto", f"{VERL} trainer.resume_mode=off"),
        (f"{VERL} trainer.resume_mode=off", "verl", f"{VERL} trainer.resume_mode=auto"),
        (VERL, "none", VERL),
        ("python train.py", "auto", "python train.py"),
        ("bash run.sh", "verl", "bash run.sh trainer.resume_mode=auto"),
        ("x --module openrlhf.cli.a", "auto", "x --module openrlhf.cli.a --load_checkpoint"),
        ("x openrlhf.cli.a --load_checkpoint", "auto", "x openrlhf.cli.a --load_checkpoint"),
        ("python a.py --output_dir out", "auto", "python a.py --output_dir out"),
        ("python a.py --output_dir out", "trl", f"python a.py --output_dir out {NEWEST}"),
        ("trl grpo --output_dir=out", "auto", f"trl grpo --output_dir=out {NEWEST}"),
        ("trl grpo --output_dir empty", "auto", "trl grpo --output_dir empty"),
        (f"a.py {NEWEST[:-3]}20 --output_dir out", "auto", f"a.py {NEWEST} --output_dir out"),
    ],
)
def test_a_retry_gets_the_argument_for_resuming_of_its_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, trainer: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for step in (20, 100, 120):
        saving.transformers(tmp_path / "out", step)
    (tmp_path / "out/checkpoint-120/trainer_state.json").unlink()  # not complete

    assert " ".join(resuming(command.split(), trainer)[0]) == expected

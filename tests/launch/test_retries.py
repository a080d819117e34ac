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
from stepwatch.launch.command import default_name
from stepwatch.launch.retries import replaced, resuming
from tests.real.ending import ended
from tests.real.waiting import eventually
from tests.runs.lines import console, measured

CUDA_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "79.15 GiB of which 1.19 GiB is free."
)

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

_TORCH = "type('OutOfMemoryError', (RuntimeError,), {'__module__': 'torch'})"
OOM = f"raise {_TORCH}({CUDA_OOM.partition(': ')[2]!r})"
NETWORK = "import socket; socket.create_connection(('127.0.0.1', 1))"
RETRY = {"failures": ["network"]}


class Trial:
    """A wrapped trainer that fails as planned, under a policy."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "runs/a.log"
        (folder / "steps").write_text("".join(console(step, measured(step)) for step in range(1, 20)))

    def plan(self, *attempts: str) -> None:
        (self.folder / "plan").write_text("\n".join(each.replace("\n", "\\n") for each in attempts) + "\n")

    def command(self, *rules: object, more: Sequence[str] = (), **policy: object) -> list[str]:
        config = {"retry": [{"name": "p", "rules": rules, "interval": "10ms", **policy}]}
        (self.folder / "config.yaml").write_text(json.dumps(config))
        options = [
            "--config",
            str(self.folder / "config.yaml"),
            "--runs",
            str(self.folder / "runs"),
            "--name",
            "a",
        ]
        run = [sys.executable, "-m", "stepwatch", "run", *options, "--retry", "p", *more, "--"]
        return [*run, sys.executable, "-c", TRAINER, str(self.folder), "batch_size=16", "--lr", "1e-6"]

    def run(self, *rules: object, **policy: object) -> subprocess.CompletedProcess[str]:
        more = policy.pop("more", ())
        command = self.command(*rules, more=more, **policy)  # type: ignore[arg-type]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @property
    def starts(self) -> list[str]:
        """The arguments of each start."""
        return (self.folder / "starts").read_text().splitlines()

    @property
    def record(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.folder / "runs/a.log.launch").read_text().splitlines()]

    @property
    def last(self) -> launch.Launch:
        found = launch.read(self.log)
        assert found is not None
        return found


@pytest.fixture(name="trial")
def _trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("stepwatch: ")]


def test_a_trainer_that_lost_the_network_is_started_again_and_resumes(trial: Trial) -> None:
    trial.plan(f"5 {NETWORK}")
    done = trial.run(RETRY)

    assert (done.returncode, len(trial.starts)) == (0, 2)
    assert said(done) == [
        "stepwatch: attempt 1 ended after step 5, by network error. Retry 1 of 3 in 0.01 s."
    ]
    assert (trial.last.state, trial.last.attempt, trial.last.retries) == ("finished", 2, 1)
    assert trial.last.retry
    assert trial.last.retry.text == "retry 1 of 3 after network error"


def test_out_of_memory_is_retried_with_the_changed_argument_each_time_smaller(trial: Trial) -> None:
    trial.plan(f"3 {OOM}", f"3 {OOM}", f"5 {OOM}")
    done = trial.run({"failures": ["cuda_oom"], "replace": {"batch_size=*": "/2", "--lr *": "*0.5"}})

    assert done.returncode == 0
    assert trial.starts == [
        "batch_size=16 --lr 1e-6",
        "batch_size=8 --lr 5e-07",
        "batch_size=4 --lr 2.5e-07",
        "batch_size=2 --lr 1.25e-07",
    ]
    assert said(done)[0] == (
        "stepwatch: attempt 1 ended after step 3, by CUDA out of memory. Retry 1 of 3 in 0.01 s, with "
        "batch_size: 16 -> 8; --lr: 1e-6 -> 5e-07."
    )
    assert [line["failure"] for line in trial.record if "ended" in line] == [*["CUDA out of memory"] * 3, ""]


@pytest.mark.parametrize(
    ("plan", "at"), [(f"5 {NETWORK}", "after step 5"), (NETWORK, "before the first step")]
)
def test_the_same_failure_at_the_same_step_with_the_same_arguments_is_retried_once(
    trial: Trial, plan: str, at: str
) -> None:
    plan = plan if plan[0].isdigit() else f"0 {plan}"
    trial.plan(*[plan] * 9)
    done = trial.run(RETRY, max_retries=9)

    assert (done.returncode, len(trial.starts)) == (1, 2)
    assert said(done)[-1] == f"stepwatch: no retry: these arguments failed {at} before, by network error"
    assert (trial.last.state, trial.last.cause) == ("failed", "network error")


def test_max_retries_ends_a_trainer_that_fails_at_another_step_each_time(trial: Trial) -> None:
    trial.plan(*[f"{step} {NETWORK}" for step in range(3, 12)])
    done = trial.run(RETRY, max_retries=2)

    assert (done.returncode, len(trial.starts)) == (1, 3)
    assert said(done)[-1] == "stepwatch: no further retry: policy p allows 2 (max_retries), and all were used"


def test_each_wait_is_longer_by_the_factor_up_to_the_limit(trial: Trial) -> None:
    trial.plan(*[f"{step} {NETWORK}" for step in range(3, 8)])
    trial.run(RETRY, max_retries=4, interval="20ms", backoff=3, max_interval="100ms")

    waits = [line.rpartition(" in ")[2] for line in trial.log.read_text().splitlines() if "Retry " in line]
    assert waits == ["0.02 s.", "0.06 s.", "0.1 s.", "0.1 s."]


@pytest.mark.parametrize(
    ("code", "rules", "reason"),
    [
        ("sys.exit(3)", [RETRY], "policy p has no rule for: exit code 3"),
        (
            "assert not step",
            [{"failures": ["assertion"], "action": "stop"}, {}],
            "policy p has a rule to stop after: ",
        ),
        ("os.kill(os.getpid(), 9)", [{"exit_codes": [1]}], "policy p has no rule for: SIGKILL"),
        (
            OOM,
            [{"failures": ["cuda_oom"], "replace": {"other=*": "/2"}}],
            "policy p cannot change other=* further",
        ),
    ],
)
def test_what_no_rule_names_is_not_retried(trial: Trial, code: str, rules: list[object], reason: str) -> None:
    trial.plan(f"3 {code}")
    done = trial.run(*rules)

    assert done.returncode != 0
    assert len(trial.starts) == 1
    assert said(done)[-1].startswith(f"stepwatch: no retry: {reason}")
    assert trial.last.state == "failed"


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("sys.exit(3)", {"exit_codes": [3, 4]}),
        ("os.kill(os.getpid(), 9)", {"signals": ["SIGKILL"]}),
        ("sys.exit(1)", {}),
        ("x = bytearray(1 << 60)", {"failures": ["host_oom"]}),
        ("raise OSError(28, os.strerror(28))", {"failures": ["disk_full"]}),
    ],
)
def test_conditions_on_exit_code_signal_and_failure_class(trial: Trial, code: str, rule: object) -> None:
    trial.plan(f"3 {code}")

    assert trial.run(rule).returncode == 0
    assert len(trial.starts) == 2


def test_without_a_policy_nothing_is_retried_and_the_class_is_noted(trial: Trial) -> None:
    trial.plan(f"3 {OOM}")
    command = trial.command(RETRY)
    at = command.index("--retry")
    done = subprocess.run([*command[:at], *command[at + 2 :]], capture_output=True, check=False)

    assert (done.returncode, len(trial.starts)) == (1, 1)
    assert (trial.last.state, trial.last.cause) == ("failed", "CUDA out of memory")


def test_a_dry_run_only_says_what_it_would_do(trial: Trial) -> None:
    trial.plan(f"3 {OOM}")
    rule = {"failures": ["cuda_oom"], "replace": {"batch_size=*": "/2"}}
    done = trial.run(rule, more=["--dry-run"])

    assert (done.returncode, len(trial.starts)) == (1, 1)
    would = "Dry run: retry 1 of 3 in 0.01 s, with batch_size: 16 -> 8."
    assert said(done) == [f"stepwatch: attempt 1 ended after step 3, by CUDA out of memory. {would}"]
    assert (trial.last.state, trial.last.retry) == ("failed", None)


def test_what_is_said_between_attempts_is_in_the_log_on_a_line_of_its_own(trial: Trial) -> None:
    trial.plan(
        f"3 {NETWORK.replace('import', 'print(1, end=chr(0), flush=True); import')}", "4 print('x', end='')"
    )
    trial.run(RETRY)

    lines = trial.log.read_text().splitlines()
    assert sum(line.startswith("stepwatch: attempt 1 ended") for line in lines) == 1
    assert not any("stepwatch: " in line[1:] for line in lines)


UNKNOWN = "--retry q: no such policy. Expected: p."


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ["--retry", "q"],
            f"{UNKNOWN} Fix: add it to retry in config.yaml, see docs/actions.md.",
        ),
        (
            ["--retry", "P-"],
            "--retry P-: no such policy. Expected: p. Fix: did you mean p?",
        ),
        (["--dry-run"], "--dry-run: no retry policy is given. Fix: name one with --retry."),
    ],
)
def test_a_policy_that_is_not_there_is_refused_before_anything_starts(
    trial: Trial, options: list[str], text: str
) -> None:
    command = trial.command(RETRY)
    at = command.index("--retry")
    command[at : at + 2] = options
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (2, f"{text}\n")
    assert not (trial.folder / "starts").exists()


FILLS = (
    "f = open(f'{folder}/runs/model.pt', 'wb', buffering=0)\n"
    "while True: f.write(bytes(4096)) or sys.exit('no space was left, and no error either')"
)
FREES = "os.remove(f'{folder}/runs/model.pt')"


@pytest.fixture(name="small_disk")
def _small_disk(trial: Trial) -> Iterator[None]:
    runs = trial.folder / "runs"
    runs.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(runs)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield
    subprocess.run(["umount", "-l", str(runs)], check=True)


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_is_full_with_its_log_on_it_is_a_failure_like_another(trial: Trial) -> None:
    trial.plan(f"3 {FILLS}", f"9 {FREES}")
    done = trial.run({"failures": ["disk_full"]})

    assert (done.returncode, len(trial.starts)) == (0, 2)
    assert any(line.endswith(", by disk full. Retry 1 of 3 in 0.01 s.") for line in said(done))


# Orders between attempts and during them


@pytest.fixture(name="start")
def _start(trial: Trial) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    with ended() as started:

        def start(*rules: object, **policy: object) -> subprocess.Popen[bytes]:
            started.append(subprocess.Popen(trial.command(*rules, **policy), stderr=subprocess.PIPE))  # type: ignore[arg-type]
            return started[-1]

        yield start


def steps(trial: Trial) -> int:
    """How many attempts have logged step 3."""
    return trial.log.read_bytes().count(b"step:3") if trial.log.exists() else 0


def waits(trial: Trial) -> bool:
    found = launch.read(trial.log)
    return found is not None and found.waits


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_at_once(
    trial: Trial, start: Callable[..., subprocess.Popen[bytes]], number: signal.Signals
) -> None:
    trial.plan(f"3 {NETWORK}")
    process = start(RETRY, interval="1h", max_interval="1h")
    eventually(lambda: waits(trial))
    assert (trial.last.state, trial.last.cause) == ("running", "")
    process.send_signal(number)

    assert b"no retry: " + number.name.encode() in process.communicate(timeout=60)[1]
    assert (process.returncode, len(trial.starts)) == (1, 1)
    assert (trial.last.state, trial.last.cause) == ("failed", "network error")


def test_a_request_ends_the_wait(trial: Trial, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    trial.plan(f"3 {NETWORK}")
    process = start(RETRY, interval="1h", max_interval="1h")
    eventually(lambda: waits(trial))
    launch.ask(trial.log, launch.Request("x", "stop", 1, "stepwatch", "kill switch"))

    assert process.wait(60) == 1
    assert len(trial.starts) == 1
    assert (trial.last.state, trial.last.cause) == ("stopped", "stopped by stepwatch: kill switch")


def test_a_wrapper_killed_while_it_waits_leaves_a_run_that_failed(
    trial: Trial, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    trial.plan(f"3 {NETWORK}")
    process = start(RETRY, interval="1h", max_interval="1h")
    eventually(lambda: waits(trial))
    process.kill()
    process.wait()

    assert (trial.last.state, trial.last.cause) == ("failed", "network error")


HANG = "import time; time.sleep(1000)"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_trainer_that_the_user_ends_is_not_retried(
    trial: Trial, start: Callable[..., subprocess.Popen[bytes]], number: signal.Signals
) -> None:
    trial.plan(f"3 {HANG}")
    process = start({})
    eventually(lambda: trial.log.exists() and b"step:3" in trial.log.read_bytes())
    process.send_signal(number)

    assert process.wait(60) != 0
    assert len(trial.starts) == 1
    assert not trial.last.waits


@pytest.mark.parametrize(("alerts", "starts"), [(["KL*"], 2), (["RewardCollapse"], 1), ([], 1)])
def test_a_stop_by_an_alert_is_retried_only_by_a_rule_that_names_it(
    trial: Trial, start: Callable[..., subprocess.Popen[bytes]], alerts: list[str], starts: int
) -> None:
    trial.plan(f"3 {HANG}")
    process = start({"alerts": alerts, "replace": {"--lr *": "*0.5"}} if alerts else {})
    eventually(lambda: trial.log.exists() and b"step:3" in trial.log.read_bytes())
    launch.ask(trial.log, launch.Request("x", "stop", 1, "stepwatch", "KLExplosion critical"))
    process.wait(60)

    assert len(trial.starts) == starts
    assert trial.last.state == ("finished" if starts == 2 else "stopped")


def test_a_second_stop_by_one_alert_at_one_step_with_the_same_arguments_is_not_retried(
    trial: Trial, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    trial.plan(f"3 {HANG}", f"3 {HANG}", f"3 {HANG}")
    process = start({"alerts": ["KLExplosion"]})
    for attempt, action in ((1, "3f0e"), (2, "9ac1")):  # as the bridge names them
        eventually(lambda attempt=attempt: steps(trial) == attempt)
        why = f"KLExplosion ({action})"
        launch.ask(trial.log, launch.Request(f"{action}-stop", "stop", attempt, "stepwatch", why))
    process.wait(60)

    assert len(trial.starts) == 2
    assert trial.log.read_text().splitlines()[-1] == (
        "stepwatch: no retry: these arguments failed after step 3 before, by stopped by stepwatch: "
        "KLExplosion (9ac1)"
    )


# Arguments


@pytest.mark.parametrize(
    ("command", "replace", "expected"),
    [
        (["a=512"], {"a=*": "/2"}, ["a=256"]),
        (["+a=7"], {"a=*": "/2"}, ["+a=3"]),
        (["a=1"], {"a=*": "/2"}, ["a=1"]),
        (["a=3", "a.b=3"], {"a=*": "*0.5"}, ["a=1", "a.b=3"]),
        (["a=1e-6"], {"a=*": "*0.1"}, ["a=1e-07"]),
        (["a=off"], {"a=*": "/2"}, ["a=off"]),
        (["a=off"], {"a=*": "on"}, ["a=on"]),
        (["--a", "8"], {"--a=*": "/4"}, ["--a", "2"]),
        (["--a=8"], {"--a *": "/4"}, ["--a=2"]),
        (["--a"], {"--a *": "/4"}, ["--a"]),
        (["a=x"], {"a=*": "/data/2"}, ["a=/data/2"]),
        (["a=0.5"], {"a=*": "/ 2"}, ["a=0.25"]),
    ],
)
def test_arguments_are_replaced(command: list[str], replace: dict[str, str], expected: list[str]) -> None:
    words, changes = replaced(command, replace)

    assert words == expected
    assert bool(changes) == (words != command)


VERL = ["python3", "-m", "verl.trainer.main_ppo", "data.train_batch_size=512"]


@pytest.mark.parametrize(
    ("command", "trainer", "added"),
    [
        (VERL, "auto", ["trainer.resume_mode=auto"]),
        (
            ["python3", "-m", "recipe.dapo.main_dapo", "actor_rollout_ref.actor.optim.lr=1"],
            "auto",
            ["trainer.resume_mode=auto"],
        ),
        ([*VERL, "trainer.resume_mode=disable"], "auto", []),
        (VERL, "none", []),
        (["python", "train.py"], "auto", []),
        (["bash", "run.sh"], "verl", ["trainer.resume_mode=auto"]),
        (["deepspeed", "--module", "openrlhf.cli.train_ppo"], "auto", ["--load_checkpoint"]),
        (["deepspeed", "--module", "openrlhf.cli.train_ppo", "--load_checkpoint"], "auto", []),
        (["python", "train.py", "--output_dir", "out"], "auto", []),
        (
            ["python", "train.py", "--output_dir", "out"],
            "trl",
            ["--resume_from_checkpoint", "out/checkpoint-100"],
        ),
        (["trl", "grpo", "--output_dir=out"], "auto", ["--resume_from_checkpoint", "out/checkpoint-100"]),
        (["trl", "grpo", "--output_dir", "empty"], "auto", []),
    ],
)
def test_a_retry_gets_the_argument_for_resuming_of_its_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], trainer: str, added: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for step in (20, 100):
        (tmp_path / f"out/checkpoint-{step}").mkdir(parents=True)
        (tmp_path / f"out/checkpoint-{step}/trainer_state.json").touch()
    (tmp_path / "out/checkpoint-120").mkdir()  # not complete

    assert resuming(command, trainer)[0] == [*command, *added]


def test_an_argument_for_resuming_that_is_there_is_brought_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-40").mkdir()
    (tmp_path / "checkpoint-40/trainer_state.json").touch()
    command = ["python", "train.py", "--resume_from_checkpoint=old", f"--output_dir={tmp_path}"]

    assert resuming(command, "auto")[0][2] == f"--resume_from_checkpoint={tmp_path}/checkpoint-40"
    assert resuming([*VERL, "trainer.resume_mode=disable"], "verl")[0][-1] == "trainer.resume_mode=auto"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train_grpo.py --lr 1", "train_grpo"),
        ("python3 -u -m verl.trainer.main_ppo data.x=y.py", "main_ppo"),
        ("torchrun --nproc_per_node 8 src/grpo.py --config a.yaml", "grpo"),
        ("torchrun --nproc_per_node 8 -m trl.scripts.grpo", "grpo"),
        ("python -m torch.distributed.run --nnodes 2 train.py", "train"),
        ("accelerate launch --config_file zero3.yaml sft.py", "sft"),
        ("uv run --with trl -- python rl/train.py", "train"),
        ("deepspeed --module openrlhf.cli.train_ppo --bf16", "train_ppo"),
        ("env A=1 bash examples/run_gsm8k.sh", "run_gsm8k"),
        ("trl grpo --config a.yaml", "trl"),
        ("/opt/trainer/bin/train", "train"),
        ("python -m mymodule", "mymodule"),
        ("python -m", "python"),
    ],
)
def test_a_run_is_called_after_its_script_or_module(command: str, name: str) -> None:
    assert default_name(command.split()) == name

"""The archive of a real run: a trainer that hangs, servers and programs that hang, full disks."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from exporter.evidence import collect
from stepwatch.launch.keeper import descendants
from stepwatch.system import http_client
from tests.evidence.trainer import SECRET
from tests.real import Server, free_port
from tests.real.disk import fill, small_disk
from tests.real.ending import end
from tests.real.environments import programs
from tests.real.hung_mount import mounted
from tests.real.waiting import eventually, in_time

ROOT = Path(__file__).parents[2]
SECONDS = 30
MOST_BYTES = 50_000_000


class Archive:
    """What an archive holds: ``files`` by their path in it, its ``index``, and how long it took."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        with tarfile.open(path) as tar:
            members = {member.name.partition("/")[2]: member for member in tar}
            self.files: Mapping[str, bytes] = {
                name: tar.extractfile(member).read() for name, member in members.items()
            }
        self.index = json.loads(self.files["index.json"])

    def rows(self, name: str = "records.jsonl") -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.files[name].splitlines()]

    def problem(self, name: str) -> str:
        return next(item["problem"] for item in self.index["items"] if item["name"] == name)


def called(*words: str | Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "exporter.evidence", *map(str, words)]
    env = {**os.environ, "PATH": path or os.environ["PATH"]}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, check=False)


def collected(folder: Path, *words: str | Path, run: str = "ppo/gsm8k", path: str | None = None) -> Archive:
    begun = time.monotonic()
    done = called(run, "--path", folder / "runs", "--out", folder / "out", *words, path=path)
    seconds = time.monotonic() - begun
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    found = Archive(Path(line), seconds)
    assert found.path.parent == folder / "out"
    assert stat.S_IMODE(found.path.stat().st_mode) == 0o600
    assert found.path.stat().st_size < MOST_BYTES
    return found


@pytest.fixture(name="runs")
def _runs(tmp_path: Path) -> Path:
    (tmp_path / "runs/ppo").mkdir(parents=True)
    return tmp_path / "runs"


@pytest.fixture(name="trainer")
def _trainer(runs: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A trainer below the wrapper that has hung at its third step."""
    command = [sys.executable, "-m", "stepwatch", "run", "--runs", runs, "--name", "ppo/gsm8k", "--"]
    trainer = [sys.executable, "-m", "tests.evidence.trainer", "--api-key", SECRET]
    started = subprocess.Popen(
        [*command, *trainer], cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True
    )
    log = runs / "ppo/gsm8k.log"
    eventually(lambda: log.exists() and b"hangs" in log.read_bytes())
    yield started
    end(started)


def steps(runs: Path, number: int = 3, name: str = "ppo/gsm8k.jsonl") -> Path:
    log = runs / name
    lines = (f'{{"step": {step}, "reward": {step / 10}, "kl": 0.01}}\n' for step in range(1, number + 1))
    log.write_text("".join(lines))
    return log


def test_a_trainer_that_hangs_below_the_wrapper_is_shown_with_its_stacks_and_without_its_secrets(
    tmp_path, trainer
):
    tools = programs("py-spy")
    found = collected(tmp_path, path=f"{tools}:{os.environ['PATH']}")
    stacks = [text.decode() for name, text in found.files.items() if name.startswith("process/stack-")]
    assert any("waits_for_the_other_ranks" in text and "train (" in text for text in stacks), found.index
    assert "tests.evidence.trainer --api-key (secret)" in found.files["process/trainer.txt"].decode()
    assert "WCHAN" in found.files["process/threads.txt"].decode()
    assert "python" in found.files["machine/processes.txt"].decode()
    rows = [(row["step"], row["signals"]["reward"]) for row in found.rows()]
    assert rows == [(1, 0.1), (2, 0.2), (3, 0.3)]
    log = found.files["logs/runs_ppo_gsm8k.log"].decode()
    assert "hangs" in log
    assert '"command": [' in found.files["logs/runs_ppo_gsm8k.log.launch"].decode()
    assert [name for name, text in found.files.items() if SECRET.encode() in text] == []
    assert in_time(found.seconds, SECONDS)
    assert trainer.poll() is None


def test_without_the_programs_the_rest_is_there_and_the_index_names_them(tmp_path, trainer):
    found = collected(tmp_path, path="/nowhere")
    problems = {item["problem"] for item in found.index["items"] if item["name"].startswith("process/stack-")}
    assert problems == {"py-spy is not on PATH"}
    assert found.problem("machine/nvidia-smi.txt") == "nvidia-smi is not on PATH"
    assert found.problem("machine/dmesg.txt") == "dmesg is not on PATH"
    assert found.problem("process/trainer.txt") == "ps is not on PATH"
    assert len(found.rows()) == 3
    assert "MemTotal" in found.files["machine/memory.txt"].decode()


def scripts(folder: Path, **programs: str) -> str:
    """A PATH with only these shell scripts."""
    folder.mkdir(exist_ok=True)
    for name, script in programs.items():
        file = folder / name.replace("_", "-")
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    return str(folder)


def test_what_nvidia_smi_and_the_kernel_log_say_is_there(tmp_path, runs):
    steps(runs)
    xid = "2026-01-02T03:04:05,678901+00:00 NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus."
    tools = scripts(
        tmp_path / "tools",
        nvidia_smi=f'[ "$*" = -q ] && echo "Product Name : NVIDIA H100" && echo "password: {SECRET}"',
        dmesg="echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1",
        journalctl=f'[ "$1" = -k ] && echo "{xid}"',
    )
    found = collected(tmp_path, path=tools)
    assert found.files["machine/nvidia-smi.txt"] == b"Product Name : NVIDIA H100\npassword: (secret)\n"
    assert found.problem("machine/dmesg.txt") == "dmesg: read kernel buffer failed: Operation not permitted"
    assert found.files["machine/journal.txt"].decode() == f"{xid}\n"


def test_config_yaml_is_there_without_its_secrets(tmp_path, runs):
    steps(runs)
    config = tmp_path / "config.yaml"
    text = (
        "actions: {policies: [{on: KLExplosion, do: [evidence, stop]}]}  # at night\n"
        "receivers:\n"
        "  - {name: chat, slack: {url_file: ./slack-url}}\n"
        "  - {name: old, slack: {url: https://%s}}\n"
        "  - {name: mail, email: {smtp_password: %s}}\n"
    )
    config.write_text(text % ("hooks.slack.com/services/T000/B000/XXXXXXXX", SECRET))
    found = collected(tmp_path, "--config-yaml", config)
    assert found.files["stack/config.yaml"].decode() == text % ("(secret)", "(secret)")
    limits = '{"limits": {"KL": {"enabled": 1}}, "hf_token": "hunter2"}'
    found = collected(tmp_path, "--limits", limits)
    assert json.loads(found.files["stack/limits.json"])["limits"] == {"KL": {"enabled": 1}}
    assert b"hunter2" not in found.files["stack/limits.json"]

    config.unlink()
    assert "No such file" in collected(tmp_path, "--config-yaml", config).problem("stack/config.yaml")
    assert collected(tmp_path).problem("stack/config.yaml") == "its path is not set: --config-yaml"


def test_a_program_that_hangs_costs_its_own_part(tmp_path, runs):
    steps(runs)
    hangs = "exec /bin/sleep 1000"
    found = collected(
        tmp_path, path=scripts(tmp_path / "tools", nvidia_smi=hangs, dmesg=hangs, journalctl=hangs)
    )
    for name in ("nvidia-smi", "dmesg", "journal"):
        assert found.problem(f"machine/{name}.txt").startswith("no answer within ")
    assert len(found.rows()) == 3
    assert in_time(found.seconds, SECONDS)


def test_of_a_program_that_prints_too_much_the_beginning_is_there(tmp_path, runs):
    steps(runs)
    found = collected(tmp_path, path=scripts(tmp_path / "tools", nvidia_smi="exec /usr/bin/yes 'a line'"))
    assert found.problem("machine/nvidia-smi.txt").startswith("its first ")
    assert found.files["machine/nvidia-smi.txt"].endswith(b"a line\n")


def test_servers_that_hang_or_are_down_cost_their_own_parts(tmp_path, runs):
    steps(runs)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "exporter.runs", "--port", str(port), "--path", str(runs)]
    with Server(command, f"{url}/-/healthy", cwd=ROOT) as exporter:
        os.kill(exporter.pid, signal.SIGSTOP)
        try:
            found = collected(
                tmp_path,
                "--exporter",
                url,
                "--prometheus",
                url,
                "--alertmanager",
                f"http://127.0.0.1:{free_port()}",
            )
        finally:
            os.kill(exporter.pid, signal.SIGCONT)
        for name in ("stack/runs.json", "alerts/timeline.json"):
            assert "no answer" in found.problem(name)
        assert "Connection refused" in found.problem("alerts/alertmanager.json")
        assert len(found.rows()) == 3
        assert in_time(found.seconds, SECONDS)

        eventually(lambda: "gsm8k" in exported(url))
        found = collected(tmp_path, "--exporter", url)
        assert [each["run"] for each in json.loads(found.files["stack/runs.json"])["runs"]] == ["ppo/gsm8k"]

        unknown = called("ppo/gsm8", "--path", runs, "--out", tmp_path / "out", "--exporter", url)
        assert unknown.returncode == 1
        assert unknown.stderr == "There is no run named ppo/gsm8. Similar names: ppo/gsm8k.\n"


def exported(url: str) -> str:
    return http_client.read(f"{url}/api/v1/runs") or ""


def test_a_mount_that_hangs_costs_what_lies_on_it(tmp_path, runs):
    (tmp_path / "mount").mkdir()
    with mounted(tmp_path / "mount") as mount:
        steps(mount.behind, name="far.jsonl")
        mount.hang()
        try:
            found = collected(tmp_path, "--path", mount.folder, run="far")
        finally:
            mount.come_back()
    assert found.problem("logs") == "no answer within 8 s"
    assert "machine/memory.txt" in found.files
    assert in_time(found.seconds, SECONDS)


def test_of_a_log_of_gigabytes_the_end_is_read(tmp_path, runs):
    log = steps(runs, 5)
    with log.open("r+b") as file:
        file.truncate(5 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"step": 90, "reward": 0.5, "kl": 0.02, "api_key": "hunter2"}\n')
    found = collected(tmp_path)
    last = found.rows()[-1]
    assert (last["step"], last["signals"]) == (90, {"reward": 0.5, "kl": 0.02})
    assert found.files["logs/runs_ppo_gsm8k.jsonl"].endswith(b'"api_key": "(secret)"}\n')
    assert in_time(found.seconds, SECONDS)


def test_the_newest_twenty_are_kept_and_nothing_else_is_touched(tmp_path, runs):
    steps(runs)
    out = tmp_path / "out"
    out.mkdir()
    others = [out / "notes.txt", out / "other.evidence.tar.gz", out / ".hidden.partial"]
    ours = [out / f"20200101T0000{number:02}Z-1-a.evidence.tar.gz" for number in range(25)]
    half = out / ".20200101T000000Z-1-a.evidence.tar.gz.partial"
    for path in (*others, *ours, half):
        path.write_text("x")
        os.utime(path, (0, 0))
    found = collected(tmp_path)
    assert sorted(path.name for path in out.iterdir()) == sorted(
        path.name for path in (*others, *ours[6:], found.path)
    )
    assert collect.KEPT == 20


def test_a_folder_that_cannot_be_written_to_is_refused_in_one_line(tmp_path, runs):
    steps(runs)
    (tmp_path / "file").write_text("")
    for out, why in ((tmp_path / "file/out", "Not a directory"), (Path("/proc/evidence"), "No such file")):
        done = called("ppo/gsm8k", "--path", runs, "--out", out)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"--out {out}: cannot be written ({why}")
        assert "Fix: make room there, or name another folder.\n" in done.stderr


def test_on_a_full_disk_nothing_is_left(tmp_path, runs):
    steps(runs)
    with small_disk(tmp_path / "disk", "tmpfs") as disk:
        fill(disk / "zeros")
        done = called("ppo/gsm8k", "--path", runs, "--out", disk)
        assert (done.returncode, done.stdout) == (1, "")
        assert "No space left on device" in done.stderr
        assert [path.name for path in disk.iterdir()] == ["zeros"]


def test_killed_in_the_middle_it_leaves_no_archive(tmp_path, runs):
    steps(runs)
    tools = scripts(tmp_path / "tools", nvidia_smi="exec /bin/sleep 1000")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "exporter.evidence", "ppo/gsm8k", "--path", runs, "--out", out]
    started = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PATH": tools})
    eventually(lambda: any("sleep" in name for name in _names(started.pid)))
    children = list(descendants(started.pid))
    started.kill()
    started.wait()
    for pid in children:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    assert [*out.iterdir()] == []


def _names(pid: int) -> list[str]:
    found = []
    for each in descendants(pid):
        try:
            found.append(Path(f"/proc/{each}/comm").read_text())
        except OSError:
            continue
    return found


def test_a_run_of_a_log_with_several_runs_has_its_own_steps(tmp_path, runs):
    head = '"Step","Name: a - critic/rewards/mean","Name: b - critic/rewards/mean"'
    (runs / "table.csv").write_text(f"{head}\n1,0.5,0.25\n2,0.5,0.75\n")
    found = collected(tmp_path, run="table/b")
    assert [(row["step"], row["signals"]["reward"]) for row in found.rows()] == [(1, 0.25), (2, 0.75)]
    done = called("--out", tmp_path / "out", "--path", runs, tmp_path / "none", "--", "table/a")
    assert done.returncode == 0

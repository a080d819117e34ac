from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepwatch.deploy.native import launcher, supervisord
from stepwatch.deploy.native import stack as parts
from stepwatch.deploy.native.state import StackError, State
from stepwatch.system import processes
from tests.native.conftest import StandInStack
from tests.real.waiting import eventually, in_time


def pid_of(stack: StandInStack, name: str) -> int:
    with supervisord.connected(stack.place) as server:
        assert server is not None
        return server.reports()[name].pid


def supervisor_pid(stack: StandInStack) -> int:
    return int((stack.place.folder / "supervisord.pid").read_text())


def test_up_restarts_only_parts_whose_command_changed_and_ends_removed_ones(stack: StandInStack) -> None:
    kept, moved, gone = stack.part("kept"), stack.part("moved"), stack.part("gone")
    stack.up(kept, moved, gone)
    pid = pid_of(stack, "kept")

    assert stack.up(kept, stack.part("moved"), stack.part("new")) == 0
    assert "restarted: moved, new" in stack.words
    assert pid_of(stack, "kept") == pid
    with supervisord.connected(stack.place) as server:
        assert server is not None
        assert set(server.reports()) == {"kept", "moved", "new"}


def test_a_part_that_is_killed_comes_back_and_status_counts_it(stack: StandInStack) -> None:
    stack.up(stack.part("one"), stack.part("other"))
    before = pid_of(stack, "one")

    os.kill(before, signal.SIGKILL)

    eventually(lambda: pid_of(stack, "one") not in (0, before))
    eventually(lambda: stack.status() == 0)
    row = next(line for line in stack.said if line.startswith("one "))
    assert row.split()[4] == "1"
    death = r"one died: killed by signal 9 \(SIGKILL\) at [\d-]+ [\d:]+\.\n\nThe log of one ends with"
    assert re.search(death, stack.words)
    assert "The log of other ends with" not in stack.words


def test_a_part_that_cannot_start_fails_up_with_its_last_words_and_degrades_status(
    stack: StandInStack,
) -> None:
    assert stack.up(stack.part("well"), stack.part("sick", die=True)) == 1
    assert "sick failed: it ended 3 times while it started (last: exit status 1 at 20" in stack.words
    assert "no such database" in stack.words
    assert stack.said[-1] == "1 of 2 parts failed: sick"
    assert stack.said[-2].startswith("  Fix: ")

    assert stack.status() == 1
    assert "no such database" in stack.words
    assert "well" in stack.words


@pytest.mark.parametrize("command", ["down", "up", "status"])
def test_parts_die_with_a_killed_supervisor_and_up_brings_everything_back(
    stack: StandInStack, command: str
) -> None:
    deaf = parts.Part("deaf", ("sh", "-c", "trap '' TERM; sleep 99 & wait"), "nothing at all")
    one = stack.part("one")
    assert stack.up(one, deaf) == 0
    os.kill(pid_of(stack, "one"), signal.SIGSTOP)
    died = {supervisor_pid(stack), pid_of(stack, "one"), pid_of(stack, "deaf")}

    os.kill(supervisor_pid(stack), signal.SIGKILL)
    begun = time.monotonic()
    eventually(lambda: not died & stack.pids())
    assert in_time(time.monotonic() - begun, 3)

    assert stack.status() == 3
    assert "not running, although no `make down` stopped it: supervisord died" in stack.words
    assert "Fix: `make up`" in stack.words
    if command == "down":
        assert stack.down() == 0
        assert stack.status() == 3
        assert stack.words == "Stepwatch is not running. `make up` starts it."
    if command == "up":
        assert stack.up(one) == 0
        assert stack.status() == 0
        assert pid_of(stack, "one") not in died


def test_a_part_that_starts_after_supervisord_died_ends_at_once(tmp_path: Path) -> None:
    """Between fork and prctl: as if adopted, by a parent that does not lead the session."""
    begun = tmp_path / "begun"
    command = [sys.executable, "-I", "-S", launcher.__file__, "touch", str(begun)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "supervisord is dead.\n"
    assert not begun.exists()

    leader = f"import os, subprocess; os.setsid(); subprocess.run({command!r}, check=True)"
    subprocess.run([sys.executable, "-c", leader], check=True)
    assert begun.exists()


def test_the_log_of_a_part_is_bounded(stack: StandInStack, monkeypatch: pytest.MonkeyPatch) -> None:
    small = supervisord._PROGRAM.replace("10MB", "1KB")
    assert small != supervisord._PROGRAM
    monkeypatch.setattr(supervisord, "_PROGRAM", small)
    assert stack.up(parts.Part("loud", ("sh", "-c", "while echo loud; do sleep 0.001; done"), "")) == 0
    log = stack.place.log("loud")

    eventually(log.with_name("loud.log.3").exists)

    sizes = [file.stat().st_size for file in stack.place.logs.glob("loud.log*")]
    assert len(sizes) <= 5  # of which one is about to be renamed
    assert max(sizes) < 100_000


@pytest.mark.parametrize("command", ["down", "up"])
def test_a_suspended_supervisor_is_named_by_status_and_goes_on(stack: StandInStack, command: str) -> None:
    part = stack.part("one")
    stack.up(part)
    supervisor, pid = supervisor_pid(stack), pid_of(stack, "one")
    os.kill(supervisor, signal.SIGSTOP)

    assert stack.status() == 1
    assert f"supervisord (pid {supervisor}) does not answer" in stack.words
    assert "Fix: `make up`" in stack.words
    row = next(line for line in stack.said if line.startswith("one "))
    assert row.split()[1:3] == ["unsupervised", "-"]
    if command == "down":
        assert stack.down() == 0
        eventually(lambda: stack.pids() == set())  # of a supervisor that is killed, parts die just after it
    else:
        assert stack.up(part) == 0
        assert (supervisor_pid(stack), pid_of(stack, "one")) == (supervisor, pid)
        assert stack.status() == 0


@pytest.mark.parametrize("command", ["down", "up"])
def test_a_supervisor_that_hangs_is_killed_after_a_while(
    stack: StandInStack, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(supervisord, "_GREETING_SECONDS", 0.5)
    monkeypatch.setattr(supervisord, "_HUNG_SECONDS", 2)
    part = stack.part("one")
    stack.up(part)
    before = stack.pids()
    hung = supervisor_pid(stack)
    os.kill(hung, signal.SIGSTOP)
    # Nothing wakes it, as where the kernel holds it.
    kill = os.kill
    monkeypatch.setattr(os, "kill", lambda pid, number: number == signal.SIGCONT or kill(pid, number))

    assert (stack.down() if command == "down" else stack.up(part)) == 0

    assert f"supervisord (pid {hung}) has not answered for 2 s; killing it and its parts." in stack.words
    assert not before & stack.pids()
    assert stack.status() == (3 if command == "down" else 0)


def test_a_stack_whose_state_folder_was_deleted_keeps_its_ports_and_its_supervisor_is_named(
    stack: StandInStack,
) -> None:
    part = stack.part("one")
    stack.up(part)
    supervisor = supervisor_pid(stack)
    shutil.rmtree(stack.place.folder)

    assert stack.status() == 3
    with pytest.raises(StackError, match=rf"Fix: stop that process \(kill {supervisor}\), or set ports\.one"):
        stack.up(part)

    os.kill(supervisor, signal.SIGTERM)
    eventually(lambda: not stack.pids())
    assert stack.up(part) == 0


@pytest.mark.parametrize("recorded", ["own", "shell", "garbage", ""])
def test_down_touches_no_process_that_got_the_id_of_a_supervisor(stack: StandInStack, recorded: str) -> None:
    stack.place.create()
    words = ["sleep", "60"] if recorded == "shell" else [sys.executable, "-c", "input()"]
    cwd = stack.place.folder if recorded == "shell" else None
    with subprocess.Popen(words, cwd=cwd, stdin=subprocess.PIPE) as stranger:
        text = str(stranger.pid) if recorded in ("own", "shell") else recorded
        (stack.place.folder / "supervisord.pid").write_text(text)

        assert stack.status() == 3
        assert stack.down() == 0

        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("content", ["", "{", "null", "7", '[{"name": "one"}]', '["one"]'])
def test_a_damaged_list_of_parts_hides_no_process_and_is_replaced(stack: StandInStack, content: str) -> None:
    part = stack.part("one")
    stack.up(part)
    pid = pid_of(stack, "one")
    stack.place.parts.write_text(content)

    assert stack.status() == 1
    assert f"{stack.place.parts}: the file is damaged" in stack.words
    assert "Fix: run `make up`, which writes it again." in stack.words
    assert str(pid) in stack.words
    assert stack.up(part) == 0
    assert stack.status() == 0
    assert pid_of(stack, "one") == pid


@pytest.mark.parametrize("content", ["", "{", "null", "[]", '{"config": 7}', "\x00" * 40])
def test_damaged_arguments_of_the_last_up_are_kept_aside_and_replaced_by_defaults(
    tmp_path: Path, content: str
) -> None:
    place, said = State(tmp_path), []
    configured = Path("runs")
    place.remember(tmp_path / "config.yaml", tmp_path / "mine", configured, said.append)
    memory = tmp_path / "remembered.json"
    memory.write_text(content)

    assert place.config(said.append) is None
    assert place.runs(configured, said.append) is None

    (aside,) = tmp_path.glob("remembered.json.damaged-*")
    assert aside.read_text() == content
    assert len(said) == 1
    assert f"{memory}: the file is damaged (moved to {aside.name})" in said[0]
    assert "make up CONFIG=file RUNS=folder" in said[0]
    place.remember(tmp_path / "config.yaml", tmp_path / "mine", configured, said.append)
    assert place.runs(configured, said.append) == tmp_path / "mine"
    assert len(said) == 1


def test_an_owner_is_named_without_the_arguments_that_may_hold_secrets(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text("import time; time.sleep(60)")
    with subprocess.Popen([sys.executable, str(script), "--token=geheim"]) as process:
        eventually(lambda: "server.py" in processes.command(process.pid))
        shown = processes.command(process.pid)
        process.kill()

    assert shown == f"{sys.executable} {script}"


def test_refused_settings_fail_up_and_show_in_status(
    stack: StandInStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwatch.deploy.native.commands._RELOAD_SECONDS", 1)
    settings = tmp_path / "settings"
    settings.write_text("one")
    part = stack.part("one", settings=settings)
    stack.up(part)
    settings.write_text("bad")

    assert stack.up(part) == 1
    assert "one refused its settings" in stack.words
    assert stack.said[-1] == "1 of 1 parts failed: one"
    assert stack.status() == 1
    assert "one refused its settings; its log says why" in stack.words


def test_a_deep_folder_with_odd_characters_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / "a ;b #c %d 'e' ü" / "state"
    stack = StandInStack(deep)
    try:
        settings = deep.parent / "set ;tings %s"
        settings.parent.mkdir(parents=True)
        settings.write_text("fine")

        assert stack.up(stack.part("one", settings=settings)) == 0
        assert stack.status() == 0
    finally:
        assert stack.down() == 0
    eventually(lambda: stack.pids() == set())


def test_the_state_folder_is_closed_to_other_users(stack: StandInStack) -> None:
    stack.up(stack.part("one"))

    assert stack.place.folder.stat().st_mode & 0o777 == 0o700
    assert stack.place.socket.stat().st_mode & 0o777 == 0o700


def test_a_suspended_part_is_named_by_status(stack: StandInStack) -> None:
    stack.up(stack.part("one"))
    pid = pid_of(stack, "one")
    os.kill(pid, signal.SIGSTOP)

    assert stack.status() == 1
    assert f"A signal suspended one. Fix: kill -CONT {pid}" in stack.words
    begun = time.monotonic()
    assert stack.down() == 0
    assert in_time(time.monotonic() - begun, 30)  # and does not wait for it to be killed


def test_a_supervisor_that_refuses_to_start_says_why(stack: StandInStack) -> None:
    stack.place.create()
    stack.place.supervisor_config.write_text("nonsense")

    with pytest.raises(StackError, match="supervisord did not start: "):
        supervisord.start(stack.place)


def test_a_state_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWATCH_STATE", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)

    with pytest.raises(StackError, match=r"belongs to another user.*Fix: "):
        State.chosen(tmp_path)


def test_a_state_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StackError, match="Expected: a folder to write to"):
        State(tmp_path / "file" / "state").create()

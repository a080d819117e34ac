"""Files and folders that the exporter may not read: counted, reported once with the fix, then read."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.runs.files.notice import MOST, Notice, Refusal, Refusals, text
from exporter.runs.logs import find
from tests.real.tools import unavailable
from tests.runs.scrape import Scrape
from tests.runs.test_main import Exporter, has, log

USER, GROUP = 23001, 23002
AS_OTHER = ("tests.runs.as_user", str(USER), str(GROUP))


@pytest.fixture(name="runs")
def _runs() -> Iterator[Path]:
    """A run folder that other users can reach, which pytest's own are not."""
    if os.geteuid() != 0:
        unavailable("only root can have the exporter run as another user")
    folder = Path(tempfile.mkdtemp(prefix="stepwatch-runs-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(name="other")
def _other() -> Iterator[Callable[..., Exporter]]:
    """The exporter as another user, who has a group of the runs' owner."""
    started: list[Exporter] = []

    def start(*paths: str | Path) -> Exporter:
        started.append(Exporter("--path", *paths, module=AS_OTHER))
        return started[-1]

    yield start
    for exporter in started:
        exporter.process.kill()
        exporter.process.communicate()


def unreadable(count: int) -> Callable[[Scrape], bool]:
    return lambda found: found.value("stepwatch_files", kind="unreadable") == count


def reported(exporter: Exporter) -> list[str]:
    return exporter.end()[2].splitlines()


def fix(line: str) -> list[str]:
    """The command that a line names."""
    return shlex.split(line.partition(" Fix: ")[2].partition("; no restart")[0])


def test_a_closed_log_is_counted_reported_once_and_read_after_the_fix(
    runs: Path, other: Callable[..., Exporter]
) -> None:
    log(runs, "open")
    log(runs, "shut").chmod(0o600)
    exporter = other(runs)
    found = exporter.until(unreadable(1))
    assert found.value("stepwatch_files", kind="log") == 1
    assert found.value("stepwatch_files", kind="empty") is None
    command = ["chmod", "o+r", str(runs / "shut.jsonl")]
    subprocess.run(command, check=True)
    exporter.until(has("shut"))
    exporter.until(unreadable(0))

    (line,) = reported(exporter)
    assert fix(line) == command
    assert f"{runs}/shut.jsonl: cannot be read: Permission denied." in line
    assert f"runs as uid {USER}, gids {USER} {GROUP}; the file has mode 600, uid 0, gid 0." in line


@pytest.mark.parametrize(
    ("mode", "rights"), [(0o700, "o+rx"), (0o711, "o+rx"), (0o744, "o+x")], ids=["shut", "no list", "no way"]
)
def test_a_closed_folder_counts_once_and_what_is_in_it_is_read_after_the_fix(
    runs: Path, other: Callable[..., Exporter], mode: int, rights: str
) -> None:
    folder = runs / "a run's"
    folder.mkdir()
    log(folder, "one")
    log(folder, "two")
    folder.chmod(mode)
    exporter = other(runs)
    exporter.until(unreadable(1))
    folder.chmod(0o755)
    exporter.until(lambda found: found.runs() == {"a run's/one", "a run's/two"})
    exporter.until(unreadable(0))

    (line,) = reported(exporter)
    assert fix(line) == ["chmod", rights, str(folder)]


@pytest.mark.parametrize(
    ("pattern", "shut", "rights"),
    [
        ("watched", "watched", "o+rx"),
        ("watched/*/*.jsonl", "watched", "o+rx"),
        ("watched/**/*.jsonl", "watched", "o+rx"),
        ("*/*.jsonl", "shut", "o+rx"),  # on the way of a glob
        ("**/*.jsonl", "shut", "o+rx"),
        ("above/watched", "above", "o+x"),
    ],
)
def test_a_closed_folder_on_the_way_counts_and_is_the_one_to_open(
    runs: Path, other: Callable[..., Exporter], pattern: str, shut: str, rights: str
) -> None:
    (runs / "open").mkdir()
    log(runs / "open")
    (runs / shut / "watched").mkdir(parents=True)
    (runs / shut).chmod(0o700)
    exporter = other(runs / pattern)
    exporter.until(unreadable(1))
    if pattern.startswith("*"):
        exporter.until(has("open/a"))

    (line,) = reported(exporter)
    assert fix(line) == ["chmod", rights, str(runs / shut)]
    assert ("folder cannot be entered" in line) == (rights == "o+x")


def test_the_fix_names_the_group_where_the_exporter_has_it(
    runs: Path, other: Callable[..., Exporter]
) -> None:
    path, folder = log(runs), runs / "folder"
    folder.mkdir()
    for each in (path, folder):
        os.chown(each, 0, GROUP)
        each.chmod(0o700)
    exporter = other(runs)
    exporter.until(unreadable(2))

    assert {" ".join(fix(line)[:2]) for line in reported(exporter)} == {"chmod g+r", "chmod g+rx"}


def test_many_are_counted_and_a_few_are_named(runs: Path, other: Callable[..., Exporter]) -> None:
    for number in range(MOST + 7):
        log(runs, f"{number:02}").chmod(0o600)
    exporter = other(runs)
    exporter.until(unreadable(MOST + 7))

    lines = reported(exporter)
    assert len(lines) == MOST + 1
    assert (
        lines[-1] == f'And 7 more cannot be read, {MOST + 7} in all (stepwatch_files{{kind="unreadable"}}).'
    )


def refused(*paths: str, number: int = errno.EACCES) -> dict[Path, Refusal]:
    return {Path(path): Refusal(Path(path), number) for path in paths}


def test_a_path_is_logged_again_only_after_it_could_be_read(logged: list[str]) -> None:
    notice = Notice()
    for paths in (["/a"], ["/a"], ["/a", "/b"], ["/b"], ["/a", "/b"]):
        notice.log(refused(*paths))

    assert [line.partition(":")[0] for line in logged] == ["/a", "/b", "/a"]


def test_a_name_of_any_bytes_stays_in_its_line(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"a\n\xff\x1b[2J\xc3\xbc")
    path.touch(0o000)

    assert f"{tmp_path}/a\\n\\udcff\\x1b[2Jü: " in (line := text(Refusal(path, errno.EACCES)))
    assert line.isprintable()


def test_what_chmod_cannot_fix_gets_no_chmod(tmp_path: Path) -> None:
    (tmp_path / "a").touch(0o600)

    assert text(Refusal(tmp_path / "a", errno.EIO)) == (
        f"{tmp_path}/a: cannot be read: Input/output error. The exporter keeps retrying."
    )
    assert "check access lists (getfacl)" in text(Refusal(tmp_path / "a", errno.EACCES))
    assert "Fix: let it read that path" in text(Refusal(tmp_path / "gone", errno.EACCES))


def test_what_is_gone_or_no_file_is_not_unreadable(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "file").touch()
    refusals = Refusals()
    paths = [tmp_path, tmp_path / "missing", tmp_path / "loop", tmp_path / "file", tmp_path / "file/below"]
    list(find.files([*map(str, paths), f"{tmp_path}/*/*.log"], refusals))

    assert refusals.by_path == {}


def test_the_folder_of_a_disk_s_checker_is_no_one_s_run(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    log(tmp_path / "lost+found")

    assert list(find.files([str(tmp_path)])) == []

"""All public logs together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.runs.logs import find
from exporter.runs.model.run import Options
from stepwatch.operate import logfiles
from tests.rules import rollout
from tests.runs.conftest import Watched
from tests.runs.remote.test_page import by_run

Watching = Callable[..., Watched]


def test_real_logs_are_no_pages(real_logs: Path) -> None:
    for path in sorted(path for path in real_logs.rglob("*") if path.is_file()):
        text = path.read_bytes()[:200_000].decode("utf-8", "replace")
        try:
            assert by_run(text, "run") == {}, path
        except ValueError:
            continue


def test_no_two_real_runs_are_taken_for_one(real_logs: Path, watched: Watching) -> None:
    found = watched(paths=(str(real_logs),), forget_after=1e12).look()

    assert found.value("stepwatch_duplicate_logs") == 0


def test_the_page_of_all_real_logs_parses(real_logs: Path, watched: Watching) -> None:
    folders = tuple(str(path) for path in real_logs.iterdir() if path.is_dir())
    found = watched(paths=folders, forget_after=1e12).look()
    files = [path for folder in folders for path in Path(folder).iterdir()]
    no_log = [path for path in files if path.suffix == ".prom"]
    of_one_folder = [path for path in files if "tfevents" in path.name]

    assert found.value("stepwatch_files", kind="text") == len(no_log)
    assert found.value("stepwatch_files", kind="log") == len(files) - len(no_log) - len(of_one_folder) + 1
    assert len(found.runs()) + (found.value("stepwatch_dormant_runs") or 0) >= len(files) - len(no_log)


def test_the_score_of_real_logs_is_the_mean_of_the_data_sets_they_name(real_logs: Path) -> None:
    folders = [str(real_logs / name) for name in ("verl_console", "verl_csv", "tfevents")]
    for log in find.files(folders):
        for run in logfiles.read(log, Options()).runs.values():
            scores = [score for (signal, _), score in run.parts.items() if signal == "validation_component"]
            if scores or "validation_score" in run.latest:
                mean = sum(scores) / len(scores)
                assert run.latest["validation_score"] == pytest.approx(mean), log.relative


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("vllm_opt125m.prom", set(rollout.VLLM.values()) | set(rollout.OLD_VLLM.values())),
        ("sglang_llama3.1-8b_docs.prom", {rollout.SGLANG[what] for what in ("waiting", "cache", "tokens")}),
        ("ray_head_2.6.1.prom", {"ray_node_mem_total", "ray_node_disk_usage", "ray_node_disk_free"}),
    ],
)
def test_what_rules_ask_for_stands_on_recorded_pages(real_logs: Path, page: str, names: set[str]) -> None:
    text = (real_logs / "prom" / page).read_text()
    assert {name for name in names if f"\n{name}{{" not in text} == set()

"""Limits that would have kept a false alarm away, and how they come into config.yaml."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stepwatch.__main__ import main
from stepwatch.backtest.verdicts import Proposal, add
from stepwatch.config import load
from stepwatch.schema.errors import Refused
from tests.backtest.conftest import log
from tests.backtest.test_suggestions import RUNS
from tests.real import free_port

FALSE = {"verdict": "false_alarm", "since": 1700000000, "note": "", "at": 1700000100.0}
PROPOSAL = Proposal("ppo/[a]", "KLHigh", "alerts.KL.warning.above_start", 0.3, 0.31)
ITEM = '- {runs: "ppo/?a?", alerts: {KL: {warning: {above_start: 0.31}}}}'
OVERRIDE = {"runs": "ppo/?a?", "alerts": {"KL": {"warning": {"above_start": 0.31}}}}


@contextmanager
def said(*verdicts: dict[str, object]) -> Iterator[int]:
    """What the run exporter says was said; gives its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"verdicts": verdicts}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", free_port()), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.usefixtures("newest")
def test_for_each_false_alarm_the_nearest_limit_is_proposed_or_said_why_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    for name in ("mild", "calm"):
        log(tmp_path / "runs/ppo" / f"{name}.jsonl", RUNS[name])
    verdicts: Sequence[dict[str, object]] = (
        {**FALSE, "run": "ppo/mild", "alert": "KLHigh", "note": "warm-up"},
        {**FALSE, "run": "ppo/calm", "alert": "KLHigh"},
        {**FALSE, "run": "ppo/gone", "alert": "KLHigh"},
        {**FALSE, "run": "ppo/mild", "alert": "RewardCollapse", "verdict": "right"},
        {**FALSE, "run": "ppo/mild", "alert": "RewardCollapse", "since": 5},
    )
    with said(*verdicts) as port:
        limit = "alerts: {KL: {warning: {above_start: 0.25}}}"
        config.write_text(f"runs: {{path: runs}}\nports: {{exporter: {port}}}\n{limit}\n")
        code = main(["verdicts", "--config", str(config)])
    told = capsys.readouterr().out

    assert code == 1, "there is none for some"
    assert "false alarm: KLHigh on ppo/mild since 20" in told
    assert " (warm-up)\n" in told
    assert "right: RewardCollapse on ppo/mild" in told
    by_alert = dict(each.split(":\n", 1) for each in told.split("\n\n")[1:] if ":\n" in each)
    proposed = by_alert["KLHigh on ppo/mild"]
    assert "alerts.KL.warning.above_start: 0.25 -> 0.31" in proposed
    assert '- {runs: "ppo/mild", alerts: {KL: {warning: {above_start: 0.31}}}}' in proposed
    assert "does not fire" in by_alert["KLHigh on ppo/calm"]
    assert "no longer below" in by_alert["KLHigh on ppo/gone"]
    assert "was judged right on this run at another time" in by_alert["RewardCollapse on ppo/mild"]
    assert "overrides" not in config.read_text(), "nothing is written unless told to"


@pytest.mark.parametrize(
    ("written", "after"),
    [
        ("", f"\noverrides:\n  {ITEM}\n"),
        (
            "runs: {path: a}  # mine\n#overrides:\n#  - {runs: b}\n",
            f"runs: {{path: a}}  # mine\n#overrides:\n#  - {{runs: b}}\n\noverrides:\n  {ITEM}\n",
        ),
        (
            "overrides:\n- runs: b\n  alerts: {KL: {}}  # why\n\n# next\nlanguage: zh\n",
            f"overrides:\n- runs: b\n  alerts: {{KL: {{}}}}  # why\n{ITEM}\n\n# next\nlanguage: zh\n",
        ),
    ],
)
def test_an_override_is_added_and_all_else_stays_as_it_is_written(
    tmp_path: Path, written: str, after: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(written)
    config.chmod(0o640)

    add(config, [PROPOSAL])

    assert config.read_text() == after
    assert OVERRIDE in [override.model_dump() for override in load(config).overrides]
    assert config.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("written", ["{}\n", "overrides: []\n", "overrides: [{runs: b, alerts: {}}]\n"])
def test_what_cannot_be_added_to_is_left_alone_with_the_line_to_add(tmp_path: Path, written: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(written)

    with pytest.raises(Refused, match=r"(?s)was not changed.*\n  - \{runs: "):
        add(config, [PROPOSAL])

    assert config.read_text() == written


def test_a_file_that_would_not_be_valid_is_left_alone(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("language: zh\n")

    with pytest.raises(Refused, match="above_start"):
        add(config, [replace(PROPOSAL, value=-1.0)])

    assert config.read_text() == "language: zh\n"
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_without_the_exporter_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"ports: {{exporter: {free_port()}}}\n")

    assert main(["verdicts", "--config", str(config)]) == 2
    assert "The run exporter" in capsys.readouterr().err

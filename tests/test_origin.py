"""A rule that does not parse is told by its alert, its template, and the line in it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from stepwatch import generate as command
from stepwatch.generate import main
from stepwatch.render import SERVICES
from tests import real
from tests.rules.rendered import CHECKOUT

RULES = "prometheus/templates/rules"


@pytest.fixture(name="checkout", params=["2.42", "3.13"])
def _checkout(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the templates; `main` takes it for its own, and asks a real promtool."""
    for service in SERVICES:
        shutil.copytree(CHECKOUT / service / "templates", tmp_path / service / "templates")
    shutil.copy(CHECKOUT / "config.yaml", tmp_path)
    monkeypatch.setenv("STEPWATCH_PROMTOOL", str(real.prometheus(request.param).tool))
    monkeypatch.setattr(command, "CHECKOUT", tmp_path)
    return tmp_path


def _break(template: Path, right: str, wrong: str) -> int:
    """Put something wrong into a template, once; returns the line in which it stands."""
    text = template.read_text()
    before, found, after = text.partition(right)
    assert found, right
    template.write_text(before + wrong + after)
    return before.count("\n") + 1


class Edit(NamedTuple):
    """What somebody did to a rule's template, and what promtool says of it."""

    alert: str
    template: str
    right: str
    wrong: str
    says: str


EDITS = (
    Edit(
        "PolicyKLHigh",
        "_kl",
        "5) %> > <%= n(limit.above)",
        "5) %> > > <%= n(limit.above)",
        "unexpected <op:>>",
    ),
    Edit("KLExplosion", "_kl", "and <%= s.suffers(", "and and <%= s.suffers(", "unexpected <aggr:max>"),
    # noticed only where the text ends that all rules share: their own last line is the one to look at
    Edit("Truncation", "_length", '(limit.lost, alpha="0.3") %>', "(limit.lost) %> >", 'unexpected ")"'),
    # in a condition that several alerts share
    Edit("RunStopped", "_progress", '{role="rollout"}', '{role="rollout"', "unexpected character"),
    Edit("GPULost", "_gpu_health", 'gpus("gpu_up") %> == 0', 'gpus("gpu_up") %> = 0', 'unexpected "="'),
    Edit("Watchdog", "stack", "vector(1)", "vector(1", "unclosed left parenthesis"),
)


@pytest.mark.parametrize("edit", EDITS, ids=[edit.alert for edit in EDITS])
def test_an_expression_that_does_not_parse_is_told_by_alert_template_and_line(
    checkout: Path, capsys: pytest.CaptureFixture[str], edit: Edit
) -> None:
    line = _break(checkout / RULES / f"{edit.template}.yml.j2", edit.right, edit.wrong)

    assert main(["--config", str(checkout / "config.yaml"), "--out", str(checkout)]) == 2
    message = capsys.readouterr().err

    assert message.startswith("promtool refuses the files of prometheus; nothing was written.")
    said = f'"{edit.alert}": could not parse expression: '
    assert re.search(rf"rule \d+, {said}.*{re.escape(edit.says)}", message)
    place = f"{RULES}/{edit.template}.yml.j2:{line}"
    assert message.count(f"{edit.alert} is written in {place}. Fix: correct the template there.\n") == 1
    assert not list(checkout.rglob("generated"))


def test_a_message_that_does_not_parse_is_told_by_the_place_of_its_rule(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = checkout / RULES / "stack.yml.j2"
    _break(path, '"Nothing to do."', '"Nothing {{ to do."')
    line = path.read_text().splitlines().index("vector(1)") + 1

    assert main(["--config", str(checkout / "config.yaml"), "--out", str(checkout)]) == 2
    message = capsys.readouterr().err

    assert '"Watchdog": annotation "description": template: ' in message
    assert f"Watchdog is written in {RULES}/stack.yml.j2:{line}. " in message
    assert not list(checkout.rglob("generated"))


def test_other_words_of_a_tool_are_passed_on_as_they_are(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _break(checkout / RULES / "_rule.yml.j2", "keep_firing_for", "keep_fighting_for")

    assert main(["--config", str(checkout / "config.yaml"), "--out", str(checkout)]) == 2
    message = capsys.readouterr().err

    assert "field keep_fighting_for not found" in message
    assert "is written in" not in message

"""Texts name the commands of a checkout; an installation has the same ones under its own name."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest

from exporter import installation
from exporter.installation import adapt
from stepwatch.__main__ import parser
from stepwatch.system.environment import CHECKOUT

OF_CHECKOUTS = {"make generate", "make gpu-check", "make test"}
"""What users of an installation do not need."""


@pytest.fixture(name="installed")
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "INSTALLED", True)


def test_documents_install_only_what_a_checkout_holds() -> None:
    texts = [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/*.md")]
    commands = r"\bpipx? install (?:-\S+ )*['\"]?(?![-`])(\S+?)(?=['\"\s`,]|$)"
    installed = {name for text in texts for name in re.findall(commands, text.read_text(), re.MULTILINE)}
    assert installed
    assert not {name for name in installed if name.startswith("stepwatch")}
    assert "." in installed


def test_a_checkout_keeps_its_texts() -> None:
    assert adapt("`make up RUNS=folder`, docs/metrics.md") == "`make up RUNS=folder`, docs/metrics.md"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("of_checkout", "of_installation"),
    [
        ("`make up`", "`stepwatch up`"),
        ("`make up DEMO=1`", "`stepwatch up --demo`"),
        ("`make up CONFIG='my config.yaml'`", "`stepwatch up --config 'my config.yaml'`"),
        ("`make evidence RUN=a OUT=/e`", "`stepwatch evidence a --out /e`"),
        ("`make tensorboard TO=/e FOLLOW=1`", "`stepwatch tensorboard --to /e --follow`"),
        ("`make config KEY=KLHigh`", "`stepwatch config --explain KLHigh`"),
        ("`make silence RUN=name FOR=2h`", "`stepwatch silence name --for 2h`"),
        ("<code>make inspect RUNS=/logs</code>", "<code>stepwatch inspect /logs</code>"),
        ("`make generate`, make up", "`make generate`, make up"),
        ("`make it 'one`", "`make it 'one`"),
        ("https://host/docs/runbook.md", "https://host/docs/runbook.md"),
        ("see docs/runbook.md#klhigh.", f"see {installation.DATA}/docs/runbook.md#klhigh."),
    ],
)
def test_an_installation_has_its_own_commands_and_pages(of_checkout: str, of_installation: str) -> None:
    assert adapt(of_checkout) == of_installation


@pytest.mark.usefixtures("installed")
def test_each_command_that_a_text_names_is_one_of_an_installation() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "stepwatch", "exporter", "demo", "config.yaml", "*/templates/*"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = {
        adapt(f"`{command}`").strip("`")
        for name in filter(None, listed.split("\0"))
        for command in re.findall(
            r"(?:`|<code>)(make [a-z-]+(?: [A-Z]+=[^\s`<{]+)*)(?:`|</code>)", (CHECKOUT / name).read_text()
        )
    }
    assert len(found) > 20
    for command in sorted(found - OF_CHECKOUTS):
        program, *words = shlex.split(command)
        assert program == "stepwatch", command
        parser().parse_args(words)


@pytest.mark.parametrize("name", ["stepwatch", "exporter"])
def test_every_command_in_a_message_stands_between_marks_that_are_recognized(name: str) -> None:
    # "Files that make up one log" is none.
    targets = "|".join(installation._COMMANDS.keys() - {"up"})
    bare = re.compile(rf"(?<![`>\w])make (?:up [A-Z]+=|(?:{targets})\b)")
    for file in sorted((CHECKOUT / name).rglob("*.py")):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            assert not bare.search(line), f"{file}:{number}: {line.strip()}"

"""`python -m stepwatch --help`: each command once, below what a person wants."""

from __future__ import annotations

import re

import pytest

from stepwatch.__main__ import main


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_groups_the_commands_by_what_a_person_wants_and_each_says_what_it_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed = said(capsys)
    with pytest.raises(SystemExit, match="2"):
        main(["nope"])
    commands = re.findall(r"'([a-z-]+)'", capsys.readouterr().err.partition("choose from")[2])
    groups = re.findall(r"(?m)^([a-z ]+):\n((?:  [a-z].*\n)+)", listed)

    assert [name for name, _ in groups] == ["start and stop", "look", "when something happened", "tune"]
    lines = [line.split(maxsplit=1) for _, text in groups for line in text.splitlines()]
    assert sorted(name for name, _ in lines) == sorted(commands)
    assert max(map(len, listed.splitlines())) <= 100
    for name, text in lines:
        own = " ".join(said(capsys, name).split())
        assert own.startswith(f"usage: python -m stepwatch {name} ")
        assert f"{text[:1].upper()}{text[1:]}." in own

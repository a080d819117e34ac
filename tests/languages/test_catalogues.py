"""Every text has its translation, with the same values and commands in it."""

from __future__ import annotations

import io
import re
from collections import Counter

import pytest
from babel.messages.catalog import Message
from babel.messages.pofile import read_po

from stepwatch.languages import ENGLISH, LANGUAGES, catalogue, file
from tests.languages.texts import collected, written

OTHERS = [language for language in LANGUAGES if language != ENGLISH]

_PLACE = re.compile(r"\{\{.*?\}\}|\{\w*\}|<\w+>|\$[a-z_]+")
_GO = re.compile(r"\{\{.*?\}\}")
_COMMAND = re.compile(r"`[^`]+`")
_HAN = "\u3400-\u9fff"
_HALF_WIDTH = re.compile(rf"(?<=[{_HAN}])[,;:?!()]|[,;:?!()](?=[{_HAN}])")
_TOUCHING = re.compile(rf"[{_HAN}][A-Za-z0-9]|[A-Za-z0-9][{_HAN}]")


def entries(language: str) -> list[Message]:
    return [each for each in read_po(io.BytesIO(file(language).read_bytes())) if each.id]


@pytest.mark.parametrize("language", OTHERS)
def test_each_text_has_its_translation_and_no_other_entry_is_left(language: str) -> None:
    present = file(language).read_bytes()

    assert [each.id for each in entries(language) if not each.string or each.fuzzy] == []
    assert written(language, collected(), present) == present, (
        "texts changed; `python -m tests.languages` brings the catalogue in step: translate what it lists"
    )


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_values_and_commands_of_its_text(language: str) -> None:
    translate = catalogue(language)
    for each in entries(language):
        said, text = _commands(each.string), _commands(each.id)
        assert all({command, translate(command)} & said for command in text), each.string
        headings = {translate(command) for command in text}
        assert all(command in each.id for command in said - headings), each.string
        assert Counter(_places(each.string)) == Counter(_places(each.id)), each.string


def _commands(text: str) -> set[str]:
    """What stands in backquotes, but for the strings of Go in what is filled in."""
    return {found.strip("`") for found in _COMMAND.findall(_GO.sub("", text))}


def _places(text: str) -> list[str]:
    """What is filled in; a string of Go within it may be translated."""
    return [_COMMAND.sub("``", each) for each in _PLACE.findall(text)]


@pytest.mark.parametrize("language", OTHERS)
def test_the_value_stands_before_its_limit_since_both_are_filled_in_by_their_order(language: str) -> None:
    said = catalogue(language)("{measured} {value}, limit {limit}")

    assert said.index("{value}") < said.index("{limit}")


@pytest.mark.parametrize("language", OTHERS)
def test_no_translation_ends_a_string_of_promql(language: str) -> None:
    """Words of conditions become the values of labels."""
    for each in entries(language):
        if any(path.startswith("stepwatch/alerts/") for path, _ in each.locations):
            outside = _PLACE.sub("", each.string)
            assert not set('"\\$') & set(outside), each.string


def test_chinese_has_full_width_punctuation_and_a_space_beside_latin() -> None:
    for each in entries("zh"):
        text = _PLACE.sub("", _COMMAND.sub("", each.string))
        assert not _HALF_WIDTH.search(text), each.string
        assert not _TOUCHING.search(text), each.string

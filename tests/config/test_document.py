import pytest

from stepwatch.config.yaml_document import parse


def values(text):
    document = parse(text, "config.yaml")

    assert document.problems == ()

    return document.values


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("0", 0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1e-3", 0.001),
        ("1.5E3", 1500.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("10m", "10m"),
        ("a:1", "a:1"),
        ("10.0.0.7:9400", "10.0.0.7:9400"),
        ("y", "y"),
        ("one_word", "one_word"),
        ("'on'", "on"),
        ('"22:22"', "22:22"),
        ("'0777'", "0777"),
        ("''", ""),
        ("|\n  on", "on"),
    ],
)
def test_a_word_means_what_every_yaml_reader_takes_it_for(word, value):
    found = values(f"key: {word}")["key"]

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "word",
    [
        "on",
        "Off",
        "YES",
        "no",
        "22:22",
        "1:30:00",
        "0777",
        "0o17",
        "0x1F",
        "0b1",
        "1_000",
        "1_0.5",
        "2026-01-02",
        "2026-01-02T03:04:05Z",
        ".nan",
        ".INF",
        "-.inf",
        "1e999",
        "1" * 30,
    ],
)
def test_a_word_that_yaml_readers_disagree_about_is_a_problem(word):
    document = parse(f"first: 1\nkey: {word}", "config.yaml")

    assert [(problem.line, problem.fault.at) for problem in document.problems] == [(2, ("key",))]


def test_an_alias_stands_for_its_value_at_every_place():
    assert values("a: &a {x: 1}\nb: *a\nc: [*a]\n") == {"a": {"x": 1}, "b": {"x": 1}, "c": [{"x": 1}]}

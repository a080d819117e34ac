"""config.yaml and docs/configuration.md say what the models say."""

import json
import re
from pathlib import Path

import pytest
import yaml

from stepwatch.config import Config, ConfigError, Duration, Size, load
from stepwatch.config.document import parse
from stepwatch.config.keys import children, every
from stepwatch.config.section import Section
from stepwatch.config.ways import WAYS
from stepwatch.generate import main

CHECKOUT = Path(__file__).parents[2]
SHIPPED = (CHECKOUT / "config.yaml").read_text()
DOCS = (CHECKOUT / "docs" / "configuration.md").read_text()
LEAVES = [
    key
    for key in every(Config)
    if not any(other.startswith((f"{key}.", f"{key}[")) for other in every(Config))
]
LISTS = ["runs.pages", "runs.mlflow", "scrape", "receivers", "overrides"]
WAYS_OF_RECEIVERS = [f"receivers[].{way}" for way in WAYS]
MALFORMED = ["&a [*a]", "!!int 5"]
WRONG = ["[1]", "{a: 1}", "true", "-1", '"x y"', "on", "22:22", ".nan", "0777", '"\\0"', "", *MALFORMED]


def with_examples():
    """The shipped file with its commented examples as settings."""
    uncommented = re.sub(r"(?m)^( *)#(?=-|  )", r"\1", SHIPPED)
    return re.sub(r"(?m)^( *(?:scrape|receivers|pages|mlflow|signals)): (?:\[\]|{})$", r"\1:", uncommented)


@pytest.fixture(name="folder")
def _folder(tmp_path):
    (tmp_path / "secrets").mkdir()
    for name in ("bridge-url", "slack-url"):
        (tmp_path / "secrets" / name).write_text("http://127.0.0.1/secret")
    (tmp_path / "secrets" / "mail-password").write_text("secret")
    return tmp_path


def load_text(folder, text):
    (folder / "config.yaml").write_text(text)
    return load(folder / "config.yaml")


def test_the_shipped_file_is_the_defaults_with_an_override_for_the_demo(folder):
    demo = {"runs": "demo/*", "alerts": {"Stalled": {"silence": "1m"}, "Restarting": {"enabled": False}}}

    assert load_text(folder, SHIPPED) == load_text(folder, json.dumps({"overrides": [demo]}))


def test_the_shipped_file_names_every_key(folder):
    lines = parse(with_examples(), "config.yaml").lines
    named = {
        re.sub(r"\.?\[\d+\]", "[]", ".".join(f"[{part}]" if isinstance(part, int) else part for part in path))
        for path in lines
    }

    assert {key for key in every(Config) if key not in named} == {"scrape[].files"} - named


def test_the_examples_of_the_shipped_file_are_accepted(folder):
    config = load_text(folder, with_examples())

    assert [job.job for job in config.scrape] == ["vllm", "ray"]
    assert [receiver.name for receiver in config.receivers] == ["oncall", "bridge", "team", "chat"]
    assert [override.runs for override in config.overrides] == ["demo/*", "sft-*"]


def default(key):
    """The default of a key as the documents write it."""
    model = Config
    *above, last = key.split(".")
    for part in above:
        model = children(model)[part.removesuffix("[]")]
    field = next(field for name, field in model.model_fields.items() if (field.alias or name) == last)
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Duration | Size):
        return str(value)
    if isinstance(value, Path):
        return str(value) if value.is_absolute() else f"./{value}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def test_the_docs_name_every_key_with_its_default():
    rows = {key: shown.strip("`") for key, shown in re.findall(r"(?m)^\| `([^`]+)` \| ([^|]+) \|", DOCS)}
    wanted = {
        key: default(key)
        for key in [*LEAVES, *LISTS, *WAYS_OF_RECEIVERS]
        if not key.endswith(".enabled") or key == "alerts.Watchdog.enabled"
    }

    assert rows == wanted


def test_every_alert_is_on_by_default_but_those_that_the_docs_name():
    off = [name for name, block in Config().alerts if not block.enabled]

    assert off == ["PolicyLossPositive", "RunFinished", "GPUMemoryHigh"]
    assert f"for {', '.join(off[:-1])} and {off[-1]} `false`" in DOCS


@pytest.fixture(name="spans", scope="module")
def _spans():
    """Where in the shipped file the value of each key begins and ends."""
    spans, waiting = {}, [("", yaml.compose(SHIPPED))]
    while waiting:
        path, node = waiting.pop()
        spans[path] = node.start_mark, node.end_mark
        if isinstance(node, yaml.MappingNode):
            waiting += [(f"{path}.{name.value}".removeprefix("."), value) for name, value in node.value]
    return spans


def is_right(key, word):
    right = {
        "true": key.endswith((".enabled", "gpus.serial", "gpus.links", "gpus.pcie")),
        "[1]": key.startswith("alerts.GPUXid.") or key == "alerts.GPURecoveryNeeded.critical",
        '"x y"': key in ("runs.path", "discovery.ray"),
    }
    return right.get(word, False)


@pytest.mark.parametrize("wrong", WRONG)
def test_any_single_value_gone_wrong_is_refused_by_line_and_key(tmp_path, capsys, spans, wrong):
    path, out = tmp_path / "config.yaml", tmp_path / "out"
    keys = [key for key in LEAVES if "[]" not in key and not is_right(key, wrong)]
    for key in keys:
        start, end = spans[key]
        path.write_text(SHIPPED[: start.index] + wrong + SHIPPED[end.index :])

        assert main(["--config", str(path), "--out", str(out)]) == 2

        message = capsys.readouterr().err
        line, inside = f"{path}:{start.line + 1}: ", r"(\[0\]|\.a)?: "
        assert message.startswith(line)
        assert wrong in MALFORMED or re.match(re.escape(key) + inside, message.removeprefix(line))
        assert re.search(r"Expected: .+\. Fix: .+[.?]$", message)
        assert len(message.splitlines()) == 1 + (key == "signals" and wrong == "{a: 1}")

    assert len(keys) > 80
    assert not out.exists()


def test_every_section_refuses_what_is_no_mapping(tmp_path):
    for key in every(Config):
        section = children(Config).get(key)
        if section and issubclass(section, Section) and key not in ("scrape", "receivers", "overrides"):
            with pytest.raises(ConfigError, match=f":1: {key}: 5 is no mapping"):
                load_text(tmp_path, f"{key}: 5\n")

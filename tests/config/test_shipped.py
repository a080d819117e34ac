"""config.yaml and docs/configuration.md say what the models say."""

import json
import re
from pathlib import Path

import pytest
import yaml

from stepwatch.__main__ import main as stepwatch
from stepwatch.config import Config, load
from stepwatch.config.models import DEMO
from stepwatch.config.reference import defaults, explain, keys
from stepwatch.generate import main
from tests.config import documentation

CHECKOUT = Path(__file__).parents[2]
SHIPPED = (CHECKOUT / "config.yaml").read_text()
DOCS = documentation.PAGE.read_text()
ALL = defaults(Config)
KEYS = [key.path for key in keys(Config)]
LEAVES = [key for key in KEYS if not any(other.startswith((f"{key}.", f"{key}[")) for other in KEYS)]
MALFORMED = ["&a [*a]", "!!int 5"]
WRONG = ["[1]", "{a: 1}", "true", "-1", '"x y"', "on", "22:22", ".nan", "0777", '"\\0"', "", *MALFORMED]


def with_examples():
    """The shipped file with its commented examples as settings."""
    return re.sub(r"(?m)^( *)#(?=[a-z]|  )", r"\1", SHIPPED)


@pytest.fixture(name="folder")
def _folder(tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "slack-url").write_text("http://127.0.0.1/secret")
    return tmp_path


def load_text(folder, text):
    (folder / "config.yaml").write_text(text)
    return load(folder / "config.yaml")


def test_the_shipped_file_is_short_and_all_defaults(folder):
    assert load_text(folder, SHIPPED) == load_text(folder, "")
    assert len(SHIPPED.splitlines()) <= 60


def test_the_examples_of_the_shipped_file_are_accepted(folder):
    config = load_text(folder, with_examples())

    assert [job.job for job in config.scrape] == ["vllm"]
    assert [receiver.name for receiver in config.receivers] == ["oncall", "chat", "team"]
    assert [override.runs for override in config.overrides if override not in DEMO] == ["sft-*"]
    assert not config.alerts.block("GradNormHigh").enabled
    assert config.runs.pages
    assert config.runs.mlflow


def test_the_demo_hangs_within_minutes_unless_the_users_own_overrides_say_otherwise(folder):
    own = [{"runs": "demo/*", "alerts": {"Stalled": {"silence": "1h"}}}]
    shipped, changed = load_text(folder, SHIPPED), load_text(folder, json.dumps({"overrides": own}))

    def silence(config, run):
        number_and_override = config.override("Stalled", run)
        base = config.alerts.block("Stalled")
        return str((number_and_override[1].over("Stalled", base) if number_and_override else base).silence)

    runs = ("demo/hangs", "demo/mine", "ppo")
    assert [silence(shipped, run) for run in runs] == ["1m", "10m", "10m"]
    assert [silence(changed, run) for run in runs] == ["1h", "1h", "10m"]


def test_defaults_are_printed_as_yaml_with_every_key_and_its_reason(folder, capsys):
    assert stepwatch(["config", "--defaults"]) == 0

    said = capsys.readouterr().out
    assert load_text(folder, said) == load_text(folder, "")
    lines = [line.lstrip("# ") for line in said.splitlines()]
    for key in keys(Config):
        name = key.path.rpartition(".")[2]
        shown = f"{name}: {key.default}".rstrip()
        assert shown in lines, key.path
        assert key.why, key.path
        assert key.why[:40] in " ".join(lines), key.path


@pytest.mark.parametrize("key", [key.path for key in keys(Config) if "[]" not in key.path])
def test_any_key_is_explained_as_yaml_that_the_file_may_hold(folder, key):
    said = explain(Config, key)

    assert load_text(folder, said) == load_text(folder, "")
    found = yaml.safe_load(said)
    for part in key.split("."):
        found = found[part]


def test_a_key_of_a_list_is_explained_with_the_keys_below_it():
    said = explain(Config, "receivers.mail")

    assert said.startswith("receivers:\n  # Mail, via an SMTP server.\n  mail: null\n")
    assert "\n  #  smarthost: required\n" in said
    assert said == explain(Config, "receivers[].mail") == explain(Config, "receivers[1].mail")


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("alerts.Kl", "Fix: did you mean KL?"),
        ("alert.KL", "Fix: did you mean alerts?"),
        ("listen.port", "listen has no keys below it. Expected: a section. Fix: remove the rest"),
        ("", "Fix: write one of these, or delete it"),
    ],
)
def test_an_unknown_key_is_refused_with_what_was_meant(key, fix, capsys):
    assert stepwatch(["config", f"--explain={key}"]) == 2

    assert fix in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("KL", "alerts.KL"),
        ("KLExplosion", "alerts.KL"),
        ("alerts.KLHigh", "alerts.KL"),
        ("KL.warning.above_start", "alerts.KL.warning.above_start"),
    ],
)
def test_a_key_is_found_by_the_name_of_an_alert(name, key, capsys):
    assert stepwatch(["config", f"--explain={name}"]) == 0

    assert capsys.readouterr().out == explain(Config, key)


def test_the_docs_have_every_key_with_its_default_and_reason():
    assert documentation.page(DOCS) == DOCS, "stale: run python -m tests.config.documentation"
    assert sorted(documentation.sections(DOCS)) == sorted(Config.model_fields)
    rows = re.findall(r"(?m)^\| `([^`]+)` \|", DOCS)
    switches = {key.path for key in keys(Config) if key.path.endswith(".enabled") and key.default == "true"}
    assert {key.path for key in keys(Config)} - switches == set(rows)


def test_every_alert_is_on_by_default_but_those_that_the_docs_name():
    off = [name for name, block in Config().alerts if not block.enabled]

    assert off == ["PolicyLossPositive", "RunFinished", "GPUMemoryHigh"]
    assert f"for {', '.join(off[:-1])} and {off[-1]} `false`" in DOCS


@pytest.fixture(name="spans", scope="module")
def _spans():
    """Where in the file of all defaults the value of each key begins and ends."""
    spans, waiting = {}, [("", yaml.compose(ALL))]
    while waiting:
        path, node = waiting.pop()
        spans[path] = node.start_mark, node.end_mark
        if isinstance(node, yaml.MappingNode):
            waiting += [(f"{path}.{name.value}".removeprefix("."), value) for name, value in node.value]
    return spans


def is_right(key, word):
    right = {
        "true": key.endswith((".enabled", "gpus.serial", "gpus.links", "gpus.pcie", "actions.dry_run")),
        "[1]": key.startswith("alerts.GPUXid.") or key == "alerts.GPURecoveryNeeded.critical",
        '"x y"': key in ("runs.path", "discovery.ray", "checkpoints.runs", "hub.username"),
    }
    return right.get(word, False)


AT_ONCE = 15
"""Fewer than the errors that are shown of one file."""


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.slow
def test_any_single_value_gone_wrong_is_refused_by_line_and_key(tmp_path, capsys, spans, wrong):
    path, out = tmp_path / "config.yaml", tmp_path / "out"
    keys = [key for key in LEAVES if "[]" not in key and not is_right(key, wrong)]
    batches = -(-len(keys) // (1 if wrong in MALFORMED else AT_ONCE))
    for some in (keys[first::batches] for first in range(batches)):
        text, lines = ALL, {}
        for key in sorted(some, key=lambda key: -spans[key][0].index):
            start, end = spans[key]
            text = text[: start.index] + wrong + text[end.index :]
            lines[key] = start.line + 1
        path.write_text(text)

        assert main(["--config", str(path), "--out", str(out)]) == 2

        messages = capsys.readouterr().err.splitlines()
        assert len(messages) == len(some) + ("signals" in some and wrong == "{a: 1}")
        for key in some:
            line, inside = f"{path}:{lines[key]}: ", r"(\[0\]|\.a)?: "
            message = next(each for each in messages if each.startswith(line))
            assert wrong in MALFORMED or re.match(re.escape(key) + inside, message.removeprefix(line))
            assert re.search(r"Expected: .+\. Fix: .+[.?]$", message)

    assert len(keys) > 80
    assert not out.exists()

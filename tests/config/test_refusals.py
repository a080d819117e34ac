"""Every rule of config.yaml: one bad file, and the exact words that refuse it (refusals.txt)."""

import re
from pathlib import Path

import pytest

from stepwatch.config import Config, load
from stepwatch.config.models import Alerts
from stepwatch.schema.errors import ConfigError

LISTS = {
    "{sections}": ", ".join(name for name, _ in Config()),
    "{alerts}": ", ".join(name for name, _ in Alerts()),
    "{alerts about runs}": ", ".join(name for name, block in Alerts() if block.about_runs),
}
# What the rule is about, the bad file, the message behind the file's name.
RULES = re.findall(
    r"(?ms)^== (.+?)\n(.*?)^-> (.+?)\n(?:\n|\Z)", (Path(__file__).parent / "refusals.txt").read_text()
)


@pytest.fixture(name="write")
def _write(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "full").write_text("secret")
    (tmp_path / "url").write_text("https://chat.example/hunter2\n")
    (tmp_path / "blank").write_text(" \n")
    (tmp_path / "two-lines").write_text("hunter2\nhunter2\n")
    (tmp_path / "long").write_text("hunter2" * 2000)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "certificate").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "encrypted").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")

    def write(content):
        path = tmp_path / "config.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def refusal(path):
    with pytest.raises(ConfigError) as caught:
        load(path)
    return str(caught.value).replace(str(path), "")


@pytest.mark.parametrize(("text", "message"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
def test_a_bad_file_is_refused_with_line_key_value_expectation_and_fix(write, tmp_path, text, message):
    for name, words in {**LISTS, "{folder}": str(tmp_path)}.items():
        message = message.replace(name, words)

    assert refusal(write(text)) == f":{message}"


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(write):
    text = (
        "ports: {grafana: on}\nrunz: {}\nalerts:\n"
        "  KL: {warning: {stddevs: -1}}\n  NonFinite: {warning: {steps: x}}\n"
    )

    lines = refusal(write(text)).splitlines()

    assert [line.split(": ")[:2] for line in lines] == [
        [":1", "ports.grafana"],
        [":2", "runz"],
        [":4", "alerts.KL.warning.stddevs"],
        [":5", "alerts.NonFinite.warning.steps"],
    ]


def test_of_hundreds_of_problems_only_the_first_are_reported(write):
    lines = refusal(write("".join(f"key{number}: 1\n" for number in range(300)))).splitlines()

    assert len(lines) == 21
    assert lines[-1] == ": 280 more problems, shown once these are corrected."


@pytest.mark.parametrize(
    "text",
    [
        "receivers: hunter2",
        "receivers: [hunter2]",
        "receivers: [{name: a, webhook: hunter2}]",
        "receivers: [{name: a, webhook: {url: hunter2}}]",
        "receivers: [{name: a, webhook: {url: [hunter2]}}]",
        'receivers: [{name: a, webhook: {url: "http://h/hunter2\\0"}}]',
        "receivers: [{name: a, webhook: {url_file: hunter2}}]",
        "receivers: [{name: a, webhook: {password: hunter2}}]",
        "receivers: [{name: a, webhook: {url: 'http://h', credentials_file: hunter2}}]",
        "receivers: [{name: a, webhook: {url_file: two-lines}}]",
        "receivers: [{name: a, mail: hunter2}]",
        "receivers: [{name: a, mail: {to: [a@b], from: a@b, smarthost: 'u:hunter2@h:25'}}]",
        "receivers: [{name: a, mail: {to: [a@b], from: a@b, smarthost: 'h:25', password: hunter2}}]",
        "receivers: [{name: a, mail: {to: [a@b], from: a@b, smarthost: 'h:25', password_file: hunter2}}]",
        "receivers: [{name: a, slack: {url_file: 'https://chat.example/hunter2'}}]",
        "receivers: [{name: a, slack: {url_file: url, channel: 'https://chat.example/hunter2'}}]",
        "scrape: [{job: a, targets: ['a:1'], bearer_token_file: hunter2}]",
        "scrape: [{job: a, targets: ['a:1'], bearer_token_file: {hunter2: x}}]",
        "runs: {pages: ['http://u:hunter2@h/']}",
        "runs: {pages: 'http://u:hunter2@h/'}",
        "runs: {mlflow: [{url: 'http://u:hunter2@h h', run_ids: [a]}]}",
        "runs: {mlflow: [{url: 'http://h', run_ids: [a], token_file: hunter2}]}",
        "remote_write: [{url: 'http://h', headers: {Authorization: hunter2}}]",
        "remote_write: [{url: 'http://h', token_file: hunter2}]",
        "remote_write: [{url: 'http://h', username: u, password_file: hunter2}]",
        "links: {runbook: 'http://admin:hunter2@h h'}",
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(write, text):
    assert "hunter2" not in refusal(write(text))


BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
"""A small file that stands for a huge document."""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x7fELF\0\0", "holds NUL bytes"),
        (b"runs: {}\npath: \xff", ":2: byte 0xff is not printable UTF-8 text"),
        (b"runs: {}\n# \x1b[0m", ":2: character U+001B is not printable UTF-8 text"),
        ("runs: {}".encode("utf-16"), "holds NUL bytes"),
        (b"#" * 3_000_000, "is larger than 2 MiB"),
        (b"[" * 2_000_000, ":1: the nesting is deeper than 32 levels"),
        (b"- " * 1_000_000, ":1: the nesting is deeper than 32 levels"),
        (BOMB, "the document grows beyond 100000 values"),
    ],
)
def test_what_is_not_text_or_no_configuration_is_refused(write, content, says):
    assert says in refusal(write(content))


def test_a_folder_is_refused(tmp_path):
    assert refusal(tmp_path) == ": is a folder. Expected: a YAML file. Fix: name the file in it."


@pytest.mark.parametrize("name", ["missing.yaml", "missing/config.yaml", "x" * 300, "a\0b"])
def test_a_file_that_cannot_be_opened_is_refused(tmp_path, name):
    message = refusal(tmp_path / name)

    assert ": cannot be read (" in message
    assert "Expected: a YAML file this user may read. Fix: check the path" in message

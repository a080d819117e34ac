"""Secrets in config.yaml are found in every text, and never repeated."""

from __future__ import annotations

import re

import pytest
import yaml

from exporter import secret_shapes
from stepwatch.config import load, loading
from stepwatch.operate.test_alert import redacted
from stepwatch.schema.errors import ConfigError
from stepwatch.system.environment import CHECKOUT

# tests/evidence/test_secrets.py has each shape. In two parts, so that no scanner takes this file for a leak.
SECRETS = [
    "xoxb" + "-abcdefghijkl-mnopqrstuvwx-ABCDEFGHIJKLmnopqrstuvwx",
    "https://hooks.slack.com" + "/services/TABCDEFGH/BABCDEFGH/abcdefghijklmnopqrstuvwx",
    "123456789" + ":ABCdefGHIjklMNOpqrSTUvwxYZabcdefghi",
    "hf" + "_abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "-----BEGIN RSA" + " PRIVATE KEY-----MIIEabcdefghijkl",
    "Bearer " + "abcdefghijklmnopqrstuvwx",
    "http://me" + ":hunter2@host:9090/",
    "https://host/page" + "#apiKey=hunter2",
    "https://host/page" + "?access_token=hunter2",
]

# Where a key has its own words for a secret in it, those.
REFUSED = re.compile(
    "holds what looks like .* Expected: no secret in this file|Expected: a URL without secrets"
)

PLACES = {
    "a link": "links: {{grafana: {0}}}",
    "a webhook": "receivers: [{{name: a, webhook: {{url: {0}}}}}]",
    "a receiver's name": "receivers: [{{name: {0}, webhook: {{url: 'http://h/'}}}}]",
    "a mail address": "receivers: [{{name: a, email: {{to: {0}, from: a@b, server: 'h:1', tls: false}}}}]",
    "a target": "scrape: [{{job: a, targets: [{0}]}}]",
    "a job": "scrape: [{{job: {0}, targets: ['h:1']}}]",
    "a label": "scrape: [{{job: a, targets: ['h:1'], labels: {{rack: {0}}}}}]",
    "a label's name": "scrape: [{{job: a, targets: ['h:1'], labels: {{{0}: rack}}}}]",
    "a metrics path": "scrape: [{{job: a, targets: ['h:1'], metrics_path: {0}}}]",
    "a file of targets": "scrape: [{{job: a, files: [{0}]}}]",
    "the run folder": "runs: {{path: {0}}}",
    "a page": "runs: {{pages: [{{url: {0}}}]}}",
    "a server": "runs: {{mlflow: [{{url: {0}}}]}}",
    "an override": "overrides: [{{runs: {0}, alerts: {{KL: {{enabled: false}}}}}}]",
    "a number": "alerts: {{KL: {{warning: {{above: {0}}}}}}}",
    "a duration": "intervals: {{runs: {0}}}",
    "the address to listen on": "listen: {0}",
    "an unknown key": "{0}: 1",
    "the value of an unknown key": "nonsense: {0}",
    "a list where none belongs": "listen: [{0}]",
}


@pytest.fixture(name="refusal")
def _refusal(tmp_path):
    """What is said of a text of config.yaml."""

    def refusal(text):
        file = tmp_path / "config.yaml"
        file.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load(file)
        assert caught.value.__cause__ is None  # a traceback would show the values
        return str(caught.value)

    return refusal


def telling(secret):
    """The part of a secret that no message may repeat."""
    return "hunter2" if "hunter2" in secret else secret


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_secret_is_refused_in_every_place_where_a_text_may_stand_and_not_repeated(refusal, place):
    for secret in SECRETS:
        said = refusal(place.format(f"'{secret}'"))

        assert telling(secret) not in said, secret
        assert secret.startswith("http") or secret[:20] not in said, secret  # nor a part of it
        assert REFUSED.search(said), (secret, said)


@pytest.mark.parametrize("name", ["password", "api_token", "apiKey", "secret", "AUTHORIZATION", "db_passwd"])
def test_a_label_that_is_named_like_a_secret_is_refused_whatever_its_value(refusal, name):
    said = refusal(f"scrape: [{{job: a, targets: ['h:1'], labels: {{{name}: hunter2}}}}]")

    assert f"scrape[0].labels.{name}: holds what looks like the value of a label" in said
    assert "hunter2" not in said


def test_a_refusal_names_the_line_and_what_to_do(refusal):
    said = refusal(f"listen: 127.0.0.1\nlinks:\n  grafana: 'https://grafana/{SECRETS[0]}'\n")

    assert "config.yaml:3: links.grafana: holds what looks like a Slack token;" in said
    assert "Fix: delete it and rotate it" in said


@pytest.mark.parametrize(
    "file", ["config.yaml", *sorted(p.name for p in (CHECKOUT / "presets").glob("*.yaml"))]
)
def test_what_is_shipped_raises_no_false_alarm(file):
    path = CHECKOUT / file if file == "config.yaml" else CHECKOUT / "presets" / file
    text = path.read_text()

    assert list(loading.within(yaml.safe_load(text))) == []
    assert [line for line in text.splitlines() if secret_shapes.found(line)] == []


@pytest.mark.parametrize("page", sorted((CHECKOUT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_the_documentation_raises_no_false_alarm(page):
    assert [line for line in page.read_text().splitlines() if secret_shapes.found(line)] == []


@pytest.mark.parametrize(
    "text",
    [
        "team-a/qwen2.5-7b-grpo-kl0.001-lr1e-6-seed42",
        "actor/pg_clipfrac",
        "num_token=512",
        "0123456789abcdef0123456789abcdef01234567",
        "https://grafana.example.org/d/stepwatch-training?orgId=1&var-run=a",
        "http://[::1]:9090/prometheus/",
        "sk-8b",
        "12:30:00",
    ],
)
def test_what_only_looks_odd_is_not_a_secret(text):
    assert secret_shapes.found(text) is None


def test_what_a_server_answers_is_shown_without_secrets():
    for secret in SECRETS:
        assert telling(secret) not in redacted(f"cannot post to {secret} now", [])

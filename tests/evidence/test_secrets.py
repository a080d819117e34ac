"""No secret leaves a process of the archive: by its shape or its name, quoted, cut, or over many lines."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter import secret_shapes
from exporter.evidence.collect import tail
from exporter.secret_shapes import found, scrubbed

PRIVATE_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"
SHAPES = (
    "xoxb-123456789012-abcdef",
    "hooks.slack.com/services/T000/B000/XXXXXXXX",
    "discord.com/api/webhooks/123/abcdefgh",
    "acme.webhook.office.com/webhookb2/abcdefgh",
    "open.feishu.cn/open-apis/bot/v2/hook/0a1b2c3d-4e5f",
    "qyapi.weixin.qq.com/cgi-bin/webhook/send?key=0a1b2c3d-4e5f",
    "SEC0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "bot123456:ABCDEFGHIJKLMNOPQRSTUVWX",
    "12345678:ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghi",
    "ghp_ABCDEFGHIJKLMNOP1234",
    "github_pat_ABCDEFGHIJKLMNOP1234",
    "glpat-ABCDEFGHIJKLMNOP1234",
    "glsoat-ABCDEFGHIJKLMNOP1234",
    "AKIAABCDEFGHIJKLMNOP",
    "AIzaABCDEFGHIJKLMNOPQRSTUVWXYZ123456",
    "ya29.ABCDEFGHIJKLMNOPQRSTUV",
    "sk-ABCDEFGHIJKLMNOPQRSTUV",
    "hf_ABCDEFGHIJKLMNOPQRSTUV",
    "glsa_ABCDEFGHIJKLMNOPQRSTUV",
    "sk_live_ABCDEFGHIJKLMNOPQR",
    "SG.ABCDEFGHIJKLMNOPQR.ABCDEFGHIJKLMNOPQR",
    "pypi-ABCDEFGHIJKLMNOPQRSTUV",
    "npm_ABCDEFGHIJKLMNOPQRSTUV",
    "eyJABCDEFGHIJ.eyJABCDEFGHIJ.sig",
    PRIVATE_KEY,
    "Bearer ABCDEFGHIJKLMNOPQR",
    "BASIC ABCDEFGHIJKLMNOPQR",
    "postgres://user:hunter2@host/db",
    "https://host/x?api_key=hunter2",
)
NAMED = (
    "OPENAI_API_KEY=hunter2",
    "export HF_TOKEN='hunter2 hunter2'",
    "WANDB_API_KEY: hunter2",
    "python train.py --wandb-api-key hunter2 --lr 1e-6",
    "python train.py --password=hunter2",
    "['train.py', '--db-password', 'hunter2']",
    '["--api-key", "hunter2"]',
    '{"password": "hunter2", "step": 4}',
    '{"password": "hunter2 \\" hunter2"}',
    json.dumps(json.dumps({"secret": "hunter2 hunter2"})),
    json.dumps(json.dumps(json.dumps({"a": {"token": "hunter2 hunter2"}}))),
    "{'private_key': 'hunter2'}",
    "Authorization: Token hunter2",
    "Cookie: session=hunter2; id=hunter2",
    "def connect(token: str = 'hunter2'):",
    "password=b'hunter2 hunter2'",
    "AWS_SECRET_ACCESS_KEY => hunter2",
    "password: 123hunter2",
)


@pytest.mark.parametrize("secret", SHAPES)
def test_what_has_the_shape_of_a_secret_is_masked(secret):
    assert found(secret)
    text = scrubbed(f'{{"step": 1}}\nreward 0.5 "{secret}" kl 0.1\nstep 2\n')
    assert found(text) is None
    assert text.startswith('{"step": 1}\nreward 0.5 "')
    assert text.endswith("step 2\n")


def test_every_kind_of_secret_has_an_example():
    kinds = {found(secret) for secret in SHAPES}
    assert kinds == set(secret_shapes._SHAPES) - {"a Teams webhook"}


@pytest.mark.parametrize("text", NAMED)
def test_the_value_of_what_is_named_as_a_secret_is_masked(text):
    line = f"step 3 {text}\nstep 4\n"
    assert "hunter2" not in scrubbed(line)
    assert scrubbed(line).endswith("\nstep 4\n")
    assert scrubbed(scrubbed(line)) == scrubbed(line)


@pytest.mark.parametrize(
    "text",
    [
        '{"step": 12, "tokens_per_second": 1234.5, "max_new_token": 512, "token": null}',
        "step 12 token reward 0.5 keyboard monkey=3 secretary 4",
        "token: None, api_key=",
        "the key of the reward is score/mean at 0x7f00",
        "https://example.org/docs?page=3#key",
    ],
)
def test_what_is_not_a_secret_stays(text):
    assert scrubbed(text) == text


SECRETS = st.sampled_from([*SHAPES, *NAMED])


@given(SECRETS, st.integers(1, 400), st.text("ab \n\"',", max_size=60))
def test_no_part_of_a_secret_is_left_wherever_the_end_of_a_log_begins(secret, most, words):
    whole = f"{words} {'x' * 80}\n{secret}\nstep 1 reward 2\n".encode()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        log.write_bytes(whole)
        try:
            text = scrubbed(tail(log, most).decode())
        except ValueError:
            text = ""
    assert found(text) is None
    assert "hunter2" not in text
    assert len(text) <= max(most, len(secret_shapes.MASK)) + 16
    assert text.endswith("step 1 reward 2\n") or most <= len(b"\nstep 1 reward 2\n")


def test_a_line_of_which_only_the_end_could_be_shown_is_left_out(tmp_path):
    log = tmp_path / "log"
    log.write_text(f"OPENAI_API_KEY={'x' * 2000}")
    with pytest.raises(ValueError, match="its last line is longer than 1 KiB"):
        tail(log, 1024)


def test_a_private_key_whose_beginning_was_cut_off_is_masked():
    body = "\n".join(["MIIEowIBAAKCAQEA" * 4] * 20)
    text = f"{body}\n-----END RSA PRIVATE KEY-----\nstep 1\n"
    assert scrubbed(text) == "(secret)\nstep 1\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ['{"kl": 0.1, "tokens_per_second": 12.5} ', "?a&b", 'token="', "a", "--token ", "://"]
)
def test_a_line_of_megabytes_takes_no_longer_than_its_length_asks_for(line):
    import time  # noqa: PLC0415

    def seconds(size: int) -> float:
        begun = time.process_time()
        scrubbed(line * (size // len(line)))
        return time.process_time() - begun

    seconds(1000)
    assert seconds(1 << 20) < 40 * (seconds(1 << 17) + 0.02)

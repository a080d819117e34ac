"""`test-alert` by Alertmanager's own integrations: what vendors answer is what it says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.generator import generate
from tests.real import AlertmanagerServer, alertmanager, free_port
from tests.real.answering import Answering
from tests.real.mailbox import Mailbox
from tests.testalert.conftest import Bench

pytestmark = pytest.mark.e2e

BLOCKS = {
    "slack": "slack_configs: [{{api_url_file: {name}-url}}]",
    "discord": "discord_configs: [{{webhook_url_file: {name}-url}}]",
    "teams": "msteamsv2_configs: [{{webhook_url_file: {name}-url}}]",
    "telegram": 'telegram_configs: [{{api_url: "{url}", bot_token_file: token, chat_id: -5}}]',
    "pagerduty": 'pagerduty_configs: [{{url: "{url}/v2/enqueue", routing_key_file: token}}]',
}
TOKEN = "123456:s3cret-token"

# As the vendors document their answers: one that is right, one about a fault of ours, one of theirs.
ANSWERS = {
    "slack": ((200, "ok"), (403, "invalid_token"), (500, "fatal_error")),
    "discord": (
        (204, ""),
        (404, '{"message": "Unknown Webhook", "code": 10015}'),
        (503, "upstream connect error"),
    ),
    "teams": ((202, ""), (400, '{"error":{"code":"TriggerInputSchemaMismatch"}}'), (502, "Bad gateway")),
    "telegram": (
        (200, '{"ok":true,"result":{"message_id":1,"date":1,"chat":{"id":-5,"type":"group"}}}'),
        (401, '{"ok":false,"error_code":401,"description":"Unauthorized"}'),
        (500, '{"ok":false,"error_code":500,"description":"Internal Server Error"}'),
    ),
    "pagerduty": (
        (202, '{"status":"success","message":"Event processed","dedup_key":"a"}'),
        (
            400,
            '{"status":"invalid event","message":"Event object is invalid","errors":["Invalid routing key"]}',
        ),
        (500, "Internal Server Error"),
    ),
}
SAYS = {
    "slack": (r"403.*invalid_token", "create a new webhook in Slack", "500"),
    "discord": (
        r"404.*Unknown Webhook",
        "create a new webhook there and put its URL into webhook_url_file",
        "503",
    ),
    "teams": (r"400.*TriggerInputSchemaMismatch", "it rejects this message", "502"),
    "telegram": (r"Unauthorized", "check what bot_token_file holds", "Internal Server Error"),
    "pagerduty": (r"400.*Invalid routing key", "check what routing_key_file", "500"),
}


@pytest.fixture(scope="module", name="ended")
def _ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[int, list[str]]]]:
    """Every vendor with every answer, all tested at once."""
    folder, port = tmp_path_factory.mktemp("vendors"), free_port()
    tool = alertmanager("0.31")
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("STEPWATCH_ALERTMANAGER", str(tool.server))
        patch.setenv("STEPWATCH_AMTOOL", str(tool.tool))
        (folder / "token").write_text(TOKEN)
        lines = []
        for vendor, answers in ANSWERS.items():
            for kind, (status, body) in zip(("good", "refusing", "broken"), answers, strict=True):
                name = f"{vendor}-{kind}"
                url = stack.enter_context(Answering(status, body)).url
                (folder / f"{name}-url").write_text(f"{url}/hook/s3cretpath")
                lines.append(f"- name: {name}\n  {BLOCKS[vendor].format(name=name, url=url)}")
        text = f"ports: {{alertmanager: {port}}}\nreceivers:\n" + "\n".join(lines)
        (folder / "config.yaml").write_text(text)
        generate(folder / "config.yaml", folder, place=OnThisMachine)
        server = AlertmanagerServer(
            "0.31",
            folder / "alertmanager/generated",
            port=port,
            options=("--enable-feature=receiver-name-in-metrics",),
        )
        server.env = dict(os.environ)
        stack.enter_context(server)
        idle = stack.enter_context(Answering()), stack.enter_context(Answering())
        bench = Bench(folder, server, *idle, stack.enter_context(Mailbox()))
        names = [f"{vendor}-{kind}" for vendor in ANSWERS for kind in ("good", "refusing", "broken")]
        with ThreadPoolExecutor(len(names)) as pool:
            yield dict(zip(names, pool.map(bench.test, names), strict=True))


@pytest.mark.parametrize("vendor", BLOCKS)
def test_a_vendor_that_takes_the_message_is_said_to_have_got_it(
    vendor: str, ended: dict[str, tuple[int, list[str]]]
) -> None:
    code, said = ended[f"{vendor}-good"]

    assert code == 0, said
    assert "Alertmanager delivered the test message by " in said[-1]


@pytest.mark.parametrize("vendor", BLOCKS)
def test_what_the_vendor_answers_is_said_with_the_fix_and_without_the_secret(
    vendor: str, ended: dict[str, tuple[int, list[str]]]
) -> None:
    error, fix, broken = SAYS[vendor]

    code, said = ended[f"{vendor}-refusing"]
    assert code == 1
    assert re.search(error, said[-1]), said
    assert fix in said[-1]

    code, said = ended[f"{vendor}-broken"]
    assert code == 1
    assert broken in said[-1]

    assert "s3cret" not in str(ended)


def test_the_folder_holds_no_secret_but_in_its_files(tmp_path: Path) -> None:
    """The settings name files: see tests/alertmanager/test_passed.py for the rest."""
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "config.yaml").write_text(
        "receivers: [{name: a, pagerduty_configs: [{routing_key_file: token}]}]"
    )
    generate(tmp_path / "config.yaml", tmp_path, place=OnThisMachine)
    assert not [path for path in tmp_path.rglob("generated/**/*.*") if "s3cret" in path.read_text()]

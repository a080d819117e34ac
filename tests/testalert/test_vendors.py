"""`test-alert` by Alertmanager's own integrations: what vendors answer is what it says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.generator import generate
from tests.real import AlertmanagerServer, alertmanager, free_port
from tests.real.answering import Answering
from tests.real.mailbox import Mailbox
from tests.testalert.conftest import Bench

pytestmark = pytest.mark.e2e

Answer = tuple[int, str]


class Vendor(NamedTuple):
    """A kind of receiver, and its answers as its vendor documents them.

    Attributes:
        block: What config.yaml says of it.
        good: To a message that it takes.
        refusing: To a fault of ours.
        says: A pattern of what is shown of that.
        fix: The fix that is shown.
        broken: To a fault of its own.
        breaks: What is shown of that.
    """

    block: str
    good: Answer
    refusing: Answer
    says: str
    fix: str
    broken: Answer = (500, "Internal Server Error")
    breaks: str = "500"


# Pushover is missing: its address is fixed.
VENDORS = {
    "slack": Vendor(
        "slack_configs: [{{api_url_file: {name}-url}}]",
        good=(200, "ok"),
        refusing=(403, "invalid_token"),
        says=r"403.*invalid_token",
        fix="create a new webhook in Slack",
        broken=(500, "fatal_error"),
    ),
    "discord": Vendor(
        "discord_configs: [{{webhook_url_file: {name}-url}}]",
        good=(204, ""),
        refusing=(404, '{"message": "Unknown Webhook", "code": 10015}'),
        says=r"404.*Unknown Webhook",
        fix="create a new webhook there and put its URL into webhook_url_file",
        broken=(503, "upstream connect error"),
        breaks="503",
    ),
    "teams": Vendor(
        "msteamsv2_configs: [{{webhook_url_file: {name}-url}}]",
        good=(202, ""),
        refusing=(400, '{"error":{"code":"TriggerInputSchemaMismatch"}}'),
        says=r"400.*TriggerInputSchemaMismatch",
        fix="it rejects this message",
        broken=(502, "Bad gateway"),
        breaks="502",
    ),
    "connector": Vendor(
        "msteams_configs: [{{webhook_url_file: {name}-url}}]",
        good=(200, "1"),
        refusing=(410, "Connector configuration not found"),
        says=r"410.*Connector configuration not found",
        fix="create a new webhook there and put its URL into webhook_url_file",
    ),
    "mattermost": Vendor(
        "mattermost_configs: [{{webhook_url_file: {name}-url}}]",
        good=(200, "ok"),
        refusing=(400, '{"id":"web.incoming_webhook.invalid.app_error","message":"Invalid webhook."}'),
        says=r"400.*Invalid webhook",
        fix="create a new webhook there and put its URL into webhook_url_file",
    ),
    "rocketchat": Vendor(
        'rocketchat_configs: [{{api_url: "{url}", token_file: token, token_id_file: token, channel: rl}}]',
        good=(200, '{"success":true,"channel":"rl"}'),
        refusing=(200, '{"success":false,"error":"[invalid-channel]"}'),
        says=r'channel "rl": .*invalid-channel',
        fix="check channel, and that the user of token_id_file may write there",
    ),
    "webex": Vendor(
        'webex_configs: [{{api_url: "{url}", room_id: r, '
        "http_config: {{authorization: {{credentials_file: token}}}}}}]",
        good=(200, '{"id":"m","roomId":"r"}'),
        refusing=(401, '{"message":"The request requires a valid access token","trackingId":"a"}'),
        says=r"401.*requires a valid access token",
        fix="check what the file with its key or token holds",
    ),
    "wechat": Vendor(
        'wechat_configs: [{{api_url: "{url}/cgi-bin/", api_secret_file: token, corp_id: c, agent_id: "1"}}]',
        good=(200, '{"errcode":0,"errmsg":"ok","access_token":"s3cret-of-session","expires_in":7200}'),
        refusing=(200, '{"errcode":40001,"errmsg":"invalid credential"}'),
        says="invalid APISecret for CorpID: c",
        fix="check corp_id and what api_secret_file holds",
        broken=(500, '{"access_token":"s3cret-of-session"}'),
    ),
    "telegram": Vendor(
        'telegram_configs: [{{api_url: "{url}", bot_token_file: token, chat_id: -5}}]',
        good=(200, '{"ok":true,"result":{"message_id":1,"date":1,"chat":{"id":-5,"type":"group"}}}'),
        refusing=(401, '{"ok":false,"error_code":401,"description":"Unauthorized"}'),
        says="Unauthorized",
        fix="check what bot_token_file holds",
        broken=(500, '{"ok":false,"error_code":500,"description":"Internal Server Error"}'),
        breaks="Internal Server Error",
    ),
    "pagerduty": Vendor(
        'pagerduty_configs: [{{url: "{url}/v2/enqueue", routing_key_file: token}}]',
        good=(202, '{"status":"success","message":"Event processed","dedup_key":"a"}'),
        refusing=(
            400,
            '{"status":"invalid event","message":"Event object is invalid","errors":["Invalid routing key"]}',
        ),
        says=r"400.*Invalid routing key",
        fix="check what routing_key_file",
    ),
    "opsgenie": Vendor(
        'opsgenie_configs: [{{api_url: "{url}/", api_key_file: token}}]',
        good=(202, '{"result":"Request will be processed","took":0.302,"requestId":"a"}'),
        refusing=(422, '{"message":"Key format is not valid!","took":0.001,"requestId":"a"}'),
        says=r"422.*Key format is not valid",
        fix="check what api_key_file holds",
    ),
    "victorops": Vendor(
        'victorops_configs: [{{api_url: "{url}/alert/", api_key_file: token, routing_key: team}}]',
        good=(200, '{"result":"success","entity_id":"a"}'),
        refusing=(404, "No such integration: {path}"),
        says=r"404.*No such integration",
        fix="check what api_key_file holds",
    ),
    "incidentio": Vendor(
        'incidentio_configs: [{{url: "{url}/v2/alert_events/a", alert_source_token_file: token}}]',
        good=(202, '{"status":"accepted","message":"Event accepted for processing"}'),
        refusing=(401, '{"type":"authentication_error","status":401,"errors":[{"code":"invalid_token"}]}'),
        says="401",  # Alertmanager expects a list of texts as errors, and shows no others
        fix="check what the file with its key or token holds",
    ),
    "jira": Vendor(
        'jira_configs: [{{api_url: "{url}/rest/api/2/", project: RL, issue_type: Bug, '
        "http_config: {{basic_auth: {{username: a, password_file: token}}}}}}]",
        good=(200, '{"issues":[]}'),
        refusing=(400, "{\"errorMessages\":[\"The value 'RL' does not exist for the field 'project'.\"]}"),
        says="400.*does not exist for the field 'project'",
        fix="it rejects this message",
    ),
    "sns": Vendor(
        'sns_configs: [{{api_url: "{url}", topic_arn: "arn:aws:sns:us-east-2:1:a", '
        "sigv4: {{region: us-east-2}}}}]",
        good=(200, "<PublishResponse><PublishResult></PublishResult></PublishResponse>"),
        refusing=(
            403,
            (
                "<ErrorResponse><Error><Code>InvalidClientTokenId</Code><Message>The security token included "
                "in the request is invalid.</Message></Error></ErrorResponse>"
            ),
        ),
        says="403.*security token included in the request is invalid",
        fix="check the AWS credentials that Alertmanager finds, and what they allow",
    ),
}
ANSWERS = ("good", "refusing", "broken")
TOKEN = "123456:s3cret-token"


@pytest.fixture(scope="module", name="ended")
def _ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[int, list[str]]]]:
    """Every vendor with every answer, some at a time."""
    folder, port = tmp_path_factory.mktemp("vendors"), free_port()
    tool = alertmanager("0.31")
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("STEPWATCH_ALERTMANAGER", str(tool.server))
        patch.setenv("STEPWATCH_AMTOOL", str(tool.tool))
        (folder / "token").write_text(TOKEN)
        lines = []
        names = [f"{vendor}-{kind}" for vendor in VENDORS for kind in ANSWERS]
        for name in names:
            vendor, _, kind = name.partition("-")
            url = stack.enter_context(Answering(*getattr(VENDORS[vendor], kind))).url
            (folder / f"{name}-url").write_text(f"{url}/hook/s3cretpath")
            lines.append(f"- name: {name}\n  {VENDORS[vendor].block.format(name=name, url=url)}")
        text = f"ports: {{alertmanager: {port}}}\nreceivers:\n" + "\n".join(lines)
        (folder / "config.yaml").write_text(text)
        generate(folder / "config.yaml", folder, place=OnThisMachine)
        server = AlertmanagerServer(
            "0.31",
            folder / "alertmanager/generated",
            port=port,
            options=("--enable-feature=receiver-name-in-metrics",),
        )
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        server.env = {**env, "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": TOKEN}
        stack.enter_context(server)
        idle = stack.enter_context(Answering()), stack.enter_context(Answering())
        bench = Bench(folder, server, *idle, stack.enter_context(Mailbox()))
        with ThreadPoolExecutor(8) as pool:  # more at once run into the limits of a busy machine
            yield dict(zip(names, pool.map(bench.test, names), strict=True))


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_vendor_that_takes_the_message_is_said_to_have_got_it(
    vendor: str, ended: dict[str, tuple[int, list[str]]]
) -> None:
    code, said = ended[f"{vendor}-good"]

    assert code == 0, said
    assert "Alertmanager delivered the test message by " in said[-1]


@pytest.mark.parametrize("vendor", VENDORS)
def test_what_the_vendor_answers_is_said_with_the_fix_and_without_the_secret(
    vendor: str, ended: dict[str, tuple[int, list[str]]]
) -> None:
    code, said = ended[f"{vendor}-refusing"]
    assert code == 1
    assert re.search(VENDORS[vendor].says, said[-1]), said
    assert VENDORS[vendor].fix in said[-1]

    code, said = ended[f"{vendor}-broken"]
    assert code == 1
    assert VENDORS[vendor].breaks in said[-1]

    assert "s3cret" not in str(ended)

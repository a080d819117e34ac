"""Robots and actions in config.yaml: refused where they make no sense; rendered only where used."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest
import yaml

from exporter.bridge.__main__ import command_line
from stepwatch.config import Config, load
from stepwatch.config.deployment import InContainers, OnThisMachine
from stepwatch.deploy.native.stack import Stack
from stepwatch.deploy.native.state import State
from stepwatch.render.generator import containers, render_all
from stepwatch.schema.errors import Refused
from stepwatch.system.environment import RESOURCES
from stepwatch.system.programs import Program

SETTINGS = PurePosixPath("exporter/generated/bridge.json")


def loaded(folder: Path, receiver: str, more: str = "") -> Config:
    for name, content in (("url", "https://robot.example/hook/s3cret-token"), ("secret", "s3cret-word")):
        (folder / name).write_text(content)
    (folder / "apprise").write_text("bark://s3cret-key@host")
    (folder / "config.yaml").write_text(f"receivers:\n- {{name: chat, {receiver}}}\n{more}")
    return load(folder / "config.yaml")


@pytest.mark.parametrize(
    ("receiver", "says"),
    [
        ("feishu: {}", "receivers[0].feishu.url_file: is missing"),
        ("feishu: {url: 'https://a/b'}", "unknown key"),
        ("wecom: {url_file: url, secret_file: secret}", "unknown key"),
        ("dingtalk: {url_file: nowhere}", "names a file that does not exist"),
        ("dingtalk: {url_file: secret}", "holds no URL"),
        ("feishu: {url_file: url}, wecom: {url_file: url}", "names feishu and wecom"),
    ],
)
def test_a_receiver_that_makes_no_sense_is_refused_with_its_line(
    tmp_path: Path, receiver: str, says: str
) -> None:
    with pytest.raises(Refused) as refused:
        loaded(tmp_path, receiver)

    assert "config.yaml:2: receivers[0]" in str(refused.value)
    assert says in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_the_service_takes_what_is_rendered_for_it_and_no_file_holds_a_secret(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        "feishu: {url_file: url, secret_file: secret, keyword: 告警}",
        "- {name: phone, apprise: {url_file: apprise}}\nlanguage: zh\n",
    )
    files = render_all(config, RESOURCES, OnThisMachine)
    (tmp_path / "bridge.json").write_bytes(files[SETTINGS])
    options = command_line([f"--config.file={tmp_path}/bridge.json"]).options()

    (name, chat), (_, phone) = options.robots
    assert (name, chat.kind, chat.keyword) == ("chat", "feishu", "告警")
    assert (chat.url_file.read_text(), chat.secret_file.read_text()) == (
        "https://robot.example/hook/s3cret-token",
        "s3cret-word",
    )
    assert (phone.kind, phone.url_file.read_text()) == ("apprise", "bark://s3cret-key@host")
    assert options.waits["BridgeDown"] == 60
    assert "KLExplosion" not in options.waits
    assert options.texts["and {count} more"] == "另有 {count} 条"
    assert not any(b"s3cret" in content for content in files.values())


def test_alertmanager_hands_over_by_a_webhook_with_its_password(tmp_path: Path) -> None:
    config = loaded(tmp_path, "wecom: {url_file: url}", "- {name: a b/c, wecom: {url_file: url}}\n")
    place = InContainers({tmp_path: "/etc/stepwatch/secrets"})
    tmp_path.chmod(0o755)
    files = render_all(config, RESOURCES, lambda _: place)
    routing = yaml.safe_load(files[PurePosixPath("alertmanager/generated/alertmanager.yml")])
    urls = {
        receiver["name"]: webhook
        for receiver in routing["receivers"]
        for webhook in receiver.get("webhook_configs", ())
    }
    assert urls["chat"]["url"] == urls["(test) chat"]["url"] == "http://bridge:9414/alerts/chat"
    assert urls["a b/c"]["url"] == "http://bridge:9414/alerts/a%20b%2Fc"
    assert urls["chat"]["http_config"]["basic_auth"]["password_file"] == "/run/stepwatch/internal-password"
    robots = json.loads(files[SETTINGS])["robots"]
    assert robots[0]["url_file"] == "/etc/stepwatch/secrets/url"


RECEIVER = 'receivers: [{name: a, webhook: {url: "http://127.0.0.1:1/"}, severities: [critical]}]\n'
ON = "actions: {policies: [{on: KLExplosion, do: [evidence, notify, stop]}]}\n"
WRONG = {
    "{on: KLExplosio, do: [stop]}": '"KLExplosio" is not an alert. Expected: an alert about runs that '
    "docs/runbook.md or alerts.d has, such as KLExplosion. Fix: did you mean KLExplosion?",
    "{on: DiskLow, do: [stop]}": '"DiskLow" is not an alert about runs.',
    "{on: KLHigh, severity: critical, do: [stop]}": '"critical" is not a severity of KLHigh. Expected: warn',
    "{on: KLHigh, do: []}": "do: is empty. Expected: one step or more.",
    "{on: KLHigh, do: [notify, notify]}": "names a step twice.",
    "{on: KLHigh, do: [reboot]}": '"reboot" is not one of the choices. Expected: one of evidence, notify,',
    "{on: KLHigh, do: [stop, evidence]}": "has steps after stop. Expected: stop as the last step.",
    "{on: KLHigh, do: [notify], kill_after: 1m}": '"1m" is set without stop.',
    "{on: KLHigh, do: [stop], runs: ''}": "is not a pattern",
    "{on: KLHigh, do: [stop], for: soon}": '"soon" is not a duration',
    "{do: [stop]}": "on: is missing.",
}


OWN = r"""
Slow:
  about: The environment is slow.
  topic: progress
  severity: warning
  limits: {seconds: {default: 5, why: Usual is 1.}}
  summary: Environment is slow
  action: look at it
  conditions: [{measured: "seconds:", value: "min_over(raw(\"env/s\"), 3)", above: $seconds, signal: env/s}]
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return file


def test_a_policy_may_follow_an_alert_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "alerts.d").mkdir()
    (tmp_path / "alerts.d/env.yaml").write_text(OWN)

    config = load(written(tmp_path, f"{RECEIVER}actions: {{policies: [{{on: Slow, do: [notify]}}]}}\n"))
    assert config.actions.triggers == (("Slow", ""),)


@pytest.mark.parametrize("policy", WRONG)
def test_a_policy_that_makes_no_sense_is_refused_with_its_line_and_the_fix(
    tmp_path: Path, policy: str
) -> None:
    with pytest.raises(Refused) as refused:
        load(written(tmp_path, f"{RECEIVER}actions:\n  policies:\n    - {policy}\n"))

    assert "config.yaml:4: actions.policies[0]" in str(refused.value)
    assert WRONG[policy] in str(refused.value)
    assert "Fix: " in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("per_day: 0", "is below 1"),
        ("veto: -1s", "is not a duration"),
    ],
)
def test_a_guard_rail_that_makes_no_sense_is_refused(tmp_path: Path, settings: str, says: str) -> None:
    with pytest.raises(Refused, match=r"config\.yaml:1: actions") as refused:
        load(written(tmp_path, f"actions: {{{settings}}}\n"))
    assert says in str(refused.value)


def test_a_run_is_not_stopped_after_an_announcement_that_no_one_gets(tmp_path: Path) -> None:
    policies = "policies: [{on: KLHigh, do: [stop]}]"
    with pytest.raises(Refused, match="would change runs without announcing it"):
        load(written(tmp_path, f"actions: {{dry_run: false, {policies}}}\n"))
    for fine in (f"dry_run: false, veto: 0s, {policies}", policies):
        assert load(written(tmp_path, f"actions: {{{fine}}}\n")).actions.enabled
    assert load(written(tmp_path, f"{RECEIVER}actions: {{dry_run: false, {policies}}}\n")).actions.enabled


def test_the_key_on_needs_no_quotes_and_the_value_on_still_does(tmp_path: Path) -> None:
    assert load(written(tmp_path, ON)).actions.policies[0].on == "KLExplosion"
    with pytest.raises(Refused, match="is a boolean to some YAML readers"):
        load(written(tmp_path, "actions: {dry_run: on}\n"))


@pytest.mark.parametrize("place", [OnThisMachine, containers])
def test_the_bridge_takes_the_policies_that_are_rendered_for_it(tmp_path: Path, place: object) -> None:
    config = load(written(tmp_path, RECEIVER + ON.replace("policies", "dry_run: false, veto: 1m, policies")))
    file = tmp_path / "bridge.json"
    file.write_bytes(render_all(config, RESOURCES, place)[SETTINGS])  # type: ignore[arg-type]
    options = command_line([f"--config.file={file}"]).options()

    (policy,) = options.policies
    assert (policy.on, policy.hold, policy.do) == ("KLExplosion", 120.0, ("evidence", "notify", "stop"))
    assert (options.dry_run, options.veto, options.per_day) == (False, 60.0, 3)
    assert options.exporter == ("http://exporter:9410" if place is containers else "http://127.0.0.1:9410")


def test_announcements_go_to_every_receiver_and_alerts_of_policies_alone_to_the_bridge(
    tmp_path: Path,
) -> None:
    config = load(written(tmp_path, RECEIVER + ON))
    files = render_all(config, RESOURCES, lambda _: InContainers())
    routing = yaml.safe_load(files[PurePosixPath("alertmanager/generated/alertmanager.yml")])
    routes = [(route["matchers"], route["receiver"]) for route in routing["route"]["routes"]]

    assert (['alertname="KLExplosion"'], "(actions)") in routes
    assert (['topic="actions"'], "(actions) a") in routes
    (ours,) = (each for each in routing["receivers"] if each["name"] == "(actions)")
    (webhook,) = ours["webhook_configs"]
    assert webhook["url"] == "http://bridge:9414/actions"
    assert webhook["http_config"]["basic_auth"]["password_file"] == "/run/stepwatch/internal-password"
    assert not any("KLHigh" in str(matchers) for matchers, _ in routes)


@pytest.mark.parametrize(
    ("settings", "used"),
    [
        ('receivers: [{name: a, webhook: {url: "http://127.0.0.1:1/"}}]\nactions: {per_day: 1}\n', False),
        (RECEIVER + ON, True),
        ("receivers: [{name: chat, wecom: {url_file: url}}]\n", True),
    ],
)
def test_the_bridge_runs_only_for_a_robot_or_a_policy(tmp_path: Path, settings: str, used: bool) -> None:
    (tmp_path / "url").write_text("https://robot.example/hook/s3cret-token")
    config = load(written(tmp_path, settings))
    files = render_all(config, RESOURCES, OnThisMachine)
    scraped = files[PurePosixPath("prometheus/generated/prometheus.yml")].decode()
    programs = Program(Path("/p"), (3, 0, 0)), Program(Path("/a"), (0, 31, 0))
    parts = [part.name for part in Stack(config, State(tmp_path), tmp_path).parts(*programs)]
    runs = json.loads(files[PurePosixPath("exporter/generated/runs.json")])

    assert (SETTINGS in files) is used
    assert ("job_name: bridge" in scraped) is used
    assert ("bridge" in parts) is used
    assert (runs["actions_url"] is not None) is ("policies" in settings)

"""The section `actions` of config.yaml: refused where it makes no sense; rendered only where used."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest
import yaml

from exporter.actions.__main__ import command_line
from stepwatch.config import load
from stepwatch.config.deployment import InContainers, OnThisMachine
from stepwatch.deploy.native.stack import Stack
from stepwatch.deploy.native.state import State
from stepwatch.render.generator import containers, render_all
from stepwatch.schema.errors import Refused
from stepwatch.system.environment import RESOURCES
from stepwatch.system.programs import Program

RECEIVER = 'receivers: [{name: a, webhook: {url: "http://127.0.0.1:1/"}, severities: [critical]}]\n'
ON = "actions: {policies: [{on: KLExplosion, do: [evidence, notify, stop]}]}\n"
WRONG = {
    "{on: KLExplosio, do: [stop]}": '"KLExplosio" is not an alert. Expected: an alert about runs that '
    "docs/runbook.md lists, such as KLExplosion. Fix: did you mean KLExplosion?",
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


def loaded(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("policy", WRONG)
def test_a_policy_that_makes_no_sense_is_refused_with_its_line_and_the_fix(
    tmp_path: Path, policy: str
) -> None:
    with pytest.raises(Refused) as refused:
        load(loaded(tmp_path, f"{RECEIVER}actions:\n  policies:\n    - {policy}\n"))

    assert "config.yaml:4: actions.policies[0]" in str(refused.value)
    assert WRONG[policy] in str(refused.value)
    assert "Fix: " in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("targets: [{runs: a}]", "pid_file: is missing"),
        ("per_day: 0", "is below 1"),
        ("veto: -1s", "is not a duration"),
    ],
)
def test_a_guard_rail_that_makes_no_sense_is_refused(tmp_path: Path, settings: str, says: str) -> None:
    with pytest.raises(Refused, match=r"config\.yaml:1: actions") as refused:
        load(loaded(tmp_path, f"actions: {{{settings}}}\n"))
    assert says in str(refused.value)


def test_a_run_is_not_stopped_after_an_announcement_that_no_one_gets(tmp_path: Path) -> None:
    policies = "policies: [{on: KLHigh, do: [stop]}]"
    with pytest.raises(Refused, match="would change runs without announcing it"):
        load(loaded(tmp_path, f"actions: {{dry_run: false, {policies}}}\n"))
    for fine in (f"dry_run: false, veto: 0s, {policies}", policies):
        assert load(loaded(tmp_path, f"actions: {{{fine}}}\n")).actions.enabled
    assert load(loaded(tmp_path, f"{RECEIVER}actions: {{dry_run: false, {policies}}}\n")).actions.enabled


def test_the_key_on_needs_no_quotes_and_the_value_on_still_does(tmp_path: Path) -> None:
    assert load(loaded(tmp_path, ON)).actions.policies[0].on == "KLExplosion"
    with pytest.raises(Refused, match="is a boolean to some YAML readers"):
        load(loaded(tmp_path, "actions: {dry_run: on}\n"))


def test_without_policies_there_is_not_a_part_no_route_and_no_file(tmp_path: Path) -> None:
    off, on = (load(loaded(tmp_path, text)) for text in ("actions: {per_day: 1}\n", RECEIVER + ON))
    names = []
    for config in (off, on):
        files = render_all(config, RESOURCES, OnThisMachine)
        routing = files[PurePosixPath("alertmanager/generated/alertmanager.yml")].decode()
        prometheus = files[PurePosixPath("prometheus/generated/prometheus.yml")].decode()
        expected = config is on
        assert (PurePosixPath("exporter/generated/actions.json") in files) is expected
        assert ("(actions)" in routing) is expected
        assert ("job_name: actions" in prometheus) is expected
        runs = json.loads(files[PurePosixPath("exporter/generated/runs.json")])
        assert (runs["actions_url"] is not None) is expected
        stack = Stack(config, State(tmp_path), tmp_path)
        names.append([part.name for part in stack.parts(*_programs())])
    assert [name for name in names[1] if name not in names[0]] == ["actions"]


def _programs() -> tuple[Program, Program]:
    return Program(Path("/p"), (3, 0, 0)), Program(Path("/a"), (0, 31, 0))


@pytest.mark.parametrize("place", [OnThisMachine, containers])
def test_the_service_takes_what_is_rendered_for_it(tmp_path: Path, place: object) -> None:
    config = load(loaded(tmp_path, RECEIVER + ON.replace("policies", "dry_run: false, veto: 1m, policies")))
    file = tmp_path / "actions.json"
    file.write_bytes(render_all(config, RESOURCES, place)[PurePosixPath("exporter/generated/actions.json")])  # type: ignore[arg-type]
    options = command_line([f"--config.file={file}"]).options()

    (rule,) = options.rules
    assert (rule.on, rule.hold, rule.do) == ("KLExplosion", 120.0, ("evidence", "notify", "stop"))
    assert (options.dry_run, options.veto, options.per_day, options.cooldown) == (False, 60.0, 3, 1800.0)
    assert options.exporter == ("http://exporter:9410" if place is containers else "http://127.0.0.1:9410")


def test_announcements_go_to_every_receiver_and_alerts_of_policies_alone_to_the_service(
    tmp_path: Path,
) -> None:
    config = load(loaded(tmp_path, RECEIVER + ON))
    files = render_all(config, RESOURCES, lambda _: InContainers())
    routing = yaml.safe_load(files[PurePosixPath("alertmanager/generated/alertmanager.yml")])
    routes = [(route["matchers"], route["receiver"]) for route in routing["route"]["routes"]]

    assert (['alertname="KLExplosion"'], "(actions)") in routes
    assert (['topic="actions"'], "(actions) a") in routes
    (ours,) = (each for each in routing["receivers"] if each["name"] == "(actions)")
    (webhook,) = ours["webhook_configs"]
    assert webhook["url"] == "http://actions:9413/api/v1/alerts"
    assert webhook["http_config"]["basic_auth"]["password_file"] == "/run/stepwatch/internal-password"
    assert not any("KLHigh" in str(matchers) for matchers, _ in routes)

"""Containers find the servers of a machine, whenever Ray's folder comes and goes."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from tests.compose.checkout import Checkout, until
from tests.compose.conftest import NETWORK
from tests.real.docker import PYTHON, Docker
from tests.runs.lines import console, measured

pytestmark = [pytest.mark.e2e, pytest.mark.world]

SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(sys.argv[1].encode())
HTTPServer(("0.0.0.0", 8000), Page).serve_forever()
"""

ENGINE = "vllm_requests 3\n"
TRAINER = """\
rl_insight_monitor_training_global_step{experiment_name="grpo",project="maths"} 7
rl_insight_monitor_critic_rewards_mean{experiment_name="grpo",project="maths"} 0.4
"""


@pytest.fixture(scope="module", name="stack")
def _stack(checkout: Checkout) -> Iterator[Checkout]:
    with checkout.running():
        yield checkout


@contextmanager
def beside(docker: Docker, pages: dict[str, str]) -> Iterator[list[str]]:
    """Servers of these pages beside the containers; gives their addresses."""
    for name, page in pages.items():
        where = (f"--name={name}", f"--network={NETWORK}")
        docker.docker("run", "--detach", *where, PYTHON, "python3", "-c", SERVER, page)
    try:
        reported = json.loads(docker.docker("inspect", *pages))
        yield [f"{each['NetworkSettings']['Networks'][NETWORK]['IPAddress']}:8000" for each in reported]
    finally:
        docker.docker("rm", "--force", *pages)


@pytest.fixture(scope="module", name="engines")
def _engines(docker: Docker, stack: Checkout) -> Iterator[list[str]]:
    with beside(docker, {"engine-0": ENGINE, "engine-1": ENGINE}) as addresses:
        yield addresses


def session(stack: Checkout, number: int, rollout: list[str], ray: list[str]) -> None:
    """What Ray and verl leave in Ray's folder: a session, links with whole paths, and their files."""
    folder = stack.ray / f"session_{number}"
    (folder / "metrics" / "prometheus").mkdir(parents=True)
    stack.ray.chmod(0o777)
    (stack.ray / "session_latest").symlink_to(folder)
    (folder / "list.json").write_text(json.dumps([{"labels": {"job": "ray"}, "targets": ray}]))
    (stack.ray / "prom_metrics_service_discovery.json").symlink_to(folder / "list.json")
    job = {"job_name": "rollout", "static_configs": [{"targets": rollout}]}
    written = folder / "metrics" / "prometheus" / "prometheus.yml"
    written.write_text(yaml.dump({"scrape_configs": [job]}, default_flow_style=False, indent=2))


def found(stack: Checkout) -> set[tuple[str, str]]:
    """Address and role of each target that the exporter names."""
    groups = stack.page("exporter", "/sd/rollout")
    return {(address, group["labels"]["role"]) for group in groups for address in group["targets"]}


def test_rays_folder_is_not_made_by_docker(stack):
    until(lambda: found(stack) == set(), "an answer")
    assert not stack.ray.exists()
    assert stack.ray.parent.exists()


def test_servers_are_found_once_ray_has_started_and_after_its_folder_was_recreated(stack, engines):
    first, second = engines
    session(stack, 1, [first, "127.0.0.1:9"], [second])
    here = ("host.docker.internal:9", "rollout")
    until(lambda: found(stack) == {(first, "rollout"), (second, "ray"), here}, "both servers")
    until(lambda: _up(stack) == {first, second}, "both scraped")

    shutil.rmtree(stack.ray)
    session(stack, 2, [second], [])
    until(lambda: (second, "rollout") in found(stack), "the server of the new session")


def test_a_line_of_a_log_gives_the_server_its_run(stack, engines):
    lines = [f"(TaskRunner pid=1) LLMServerManager: ['{engines[0]}']\n", console(1, measured(1))]
    (stack.folder / "runs" / "ppo.log").write_text("".join(lines))

    until(
        lambda: {each["metric"].get("run") for each in stack.query('up{role="rollout"} == 1')} >= {"ppo"},
        "run",
    )


def test_what_registers_at_the_published_port_outlives_the_container(stack, docker):
    with beside(docker, {"trainer": TRAINER, "server": ENGINE}) as (trainer, server):
        register(stack, "trainer_metrics", trainer)
        register(stack, "vllm", server)
        until(lambda: server in _up(stack), "the server in Prometheus")
        until(lambda: stack.query('rl_reward{run="maths/grpo"} == 0.4'), "the trainer's run")

        stack.compose("restart", "--timeout=5", "exporter")
        until(lambda: (server, "rollout") in found(stack), "the server after the restart")
        until(lambda: stack.query('rl_run_state{run="maths/grpo",state="running"} == 1'), "the run")


def register(stack: Checkout, job: str, address: str) -> None:
    """As rl-insight's client does."""
    body = json.dumps({"job_name": job, "targets": [address]}).encode()
    url = f"{stack.url('exporter')}/api/v1/prometheus/targets"
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            assert json.load(answer)["target_count"] == 1
    except urllib.error.HTTPError as refusal:
        raise AssertionError(refusal.read().decode()) from None


def _up(stack: Checkout) -> set[str]:
    return {each["metric"]["instance"] for each in stack.query('up{role=~"rollout|ray"} == 1')}

"""verl's `rl_insight` logger as it is, with its server's address changed: real Ray, client and Prometheus."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from exporter.http.exposition import CONTENT_TYPE
from stepwatch.system import http_client
from tests.e2e.stack import PAIRS, Stack
from tests.real import eventually, free_port
from tests.real.rl_insight import NODE, Job, RayCluster
from tests.runs.lines import append
from tests.runs.scrape import Scrape
from tests.runs.speaking import Speaking, says

pytestmark = pytest.mark.e2e

FAST = {"intervals": {"runs": "1s", "scrape": "2s", "rules": "1s"}}
ENGINE_PAGE = b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3\n"

CYCLES = 240
"""Evaluations, one a second. Sources are asked every 5 s, and Prometheus takes up news every 5 s, twice."""


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[RayCluster]:
    with RayCluster() as cluster:
        yield cluster


def measured(step: int, **other: float) -> dict[str, float]:
    """A step as verl's trainer logs it: the step's own number is not the last."""
    return {
        "actor/entropy": 0.9 - step / 100,
        "actor/grad_norm": 0.3 + step / 50,
        "training/global_step": step,
        "critic/score/mean": 0.1 + step / 30,
        "response_length/mean": 200.0 + 7 * step,
        **{name.replace("__", "/"): value for name, value in other.items()},
    }


class Watched:
    """A stack that a job on the cluster reports to."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.url = f"http://{stack.config.address('exporter')}"

    def scrape(self) -> Scrape:
        return Scrape((http_client.read(f"{self.url}/metrics") or "").encode())

    def steps(self, job: Job, run: str, *steps: int, **other: float) -> Scrape:
        """Log steps, each once the one before was seen."""
        for step in steps:
            job("log", measured(step, **other))
            eventually(lambda step=step: self.scrape().value("rl_step", run=run) == step)  # type: ignore[misc]
        return self.scrape()

    def targets(self, job: str) -> dict[str, dict[str, str]]:
        """The labels of a job's targets that answer Prometheus, by address."""
        found = [each["metric"] for each in self.stack.query(f'up{{job="{job}"}} == 1')]
        return {labels.pop("instance"): labels for labels in found}


def test_a_job_of_verl_is_watched_whose_server_address_was_changed(
    cluster: RayCluster, tmp_path: Path
) -> None:
    with ExitStack() as open_now:
        stack = open_now.enter_context(
            Stack(tmp_path, PAIRS[1], **FAST, discovery={"ray": str(cluster.temp)})
        )
        page = says(ENGINE_PAGE, Content_Type=CONTENT_TYPE)
        engines = [open_now.enter_context(Speaking(page)).url.removeprefix("http://") for _ in range(2)]
        watched, port = Watched(stack), free_port(NODE)
        with Job(cluster, watched.url, port) as job:
            job("begin", "maths", "ppo")
            job("log", {"val-core/gsm8k/reward/mean@1": 0.25})
            job("servers", engines, "vllm", [{"replica": 0}, {"replica": 1}])
            eventually(lambda: watched.scrape().value("stepwatch_registered_servers") == 3)
            found = watched.steps(job, "maths/ppo", 1, 2, 3)

            assert found.value("rl_reward", run="maths/ppo") == pytest.approx(0.2)
            assert found.value("rl_records_total", run="maths/ppo") == 3
            assert found.value("rl_validation_score", run="maths/ppo") == 0.25
            assert found.value("rl_run_info", run="maths/ppo", framework="verl", source="rl_insight") == 1

            stack.exporter.stop()
            stack.exporter.start()
            found = watched.steps(job, "maths/ppo", 4)
            assert found.value("stepwatch_registered_servers") == 3
            assert found.value("rl_records_total", run="maths/ppo") == 4
            assert found.value("rl_resumes_total", run="maths/ppo") == 0
            assert found.runs() == {"maths/ppo"}

            watched.steps(job, "maths/ppo", 5, 6, actor__grad_norm=math.nan)
            stack.wait_until(lambda: ("NonFinite", "maths/ppo") in stack.firing(), CYCLES)
            stack.wait_until(lambda: stack.query('rl_reward{run="maths/ppo"} > 0.299'), CYCLES)
            stack.wait_until(lambda: len(watched.targets("rollout")) == 2, CYCLES)
            stack.wait_until(lambda: "run" in watched.targets("trainer").get(job.page, {}), CYCLES)
            assert watched.targets("rollout") == {
                engine: {
                    "__name__": "up",
                    "job": "rollout",
                    "role": "rollout",
                    "replica": str(number),
                    "rl_insight_job": "vllm",
                }
                for number, engine in enumerate(engines)
            }
            assert watched.targets("trainer")[job.page]["run"] == "maths/ppo"
            assert len(watched.targets("ray")) >= 2  # Ray's own list, through its link

        with Job(cluster, watched.url, port) as job:
            job("begin", "maths", "sft")
            found = watched.steps(job, "maths/sft", 1, 2)
            assert found.value("rl_records_total", run="maths/sft") == 2
            assert found.value("rl_records_total", run="maths/ppo") == 6
            assert found.value("stepwatch_registered_servers") == 3


def test_a_job_with_a_token_is_watched_once_where_its_log_is_watched_as_well(
    cluster: RayCluster, tmp_path: Path
) -> None:
    secret = tmp_path / "token"
    secret.write_text("opensesame/1\n")
    secret.chmod(0o600)
    settings = {"discovery": {"ray": None, "token_file": str(secret)}, **FAST}
    with Stack(tmp_path / "stack", PAIRS[0], **settings) as stack:
        watched = Watched(stack)
        with Job(cluster, watched.url, free_port(NODE)) as stranger:
            stranger("begin", "maths", "ppo")
            eventually(
                lambda: (watched.scrape().value("stepwatch_registrations_total", result="token") or 0) > 0
            )
        with Job(cluster, watched.url.replace("//", "//any:opensesame%2F1@"), free_port(NODE)) as job:
            job("begin", "maths", "grpo")
            for step in range(1, 7):
                line = " - ".join(f"{key}:{value}" for key, value in measured(step).items())
                append(stack.runs / "console.log", f"step:{step} - {line}\n")
                found = watched.steps(job, "maths/grpo", step) if step < 4 else watched.scrape()
                job("log", measured(step))
            stack.wait_until(lambda: watched.scrape().runs() == {"console"}, CYCLES)
            stack.wait_until(
                lambda: watched.targets("trainer").get(job.page, {}).get("run") == "console", CYCLES
            )
            found = watched.scrape()
            assert found.value("stepwatch_registered_servers") == 1
            assert found.value("stepwatch_registrations_total", result="accepted") == 1
            assert "opensesame" not in found.text
        stack.exporter.stop()
        assert b"opensesame" not in stack.exporter.log.read_bytes()

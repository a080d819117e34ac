"""What panels show of series over time, by promtool: its time is not ours, so that hours take none."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from stepwatch.alerts.table import TABLE
from stepwatch.rules.messages import TEXT_INFO, Entry, entries
from stepwatch.system.environment import CHECKOUT
from tests.grafana.conftest import Dashboards, Json
from tests.grafana.queries import View, panels_of
from tests.real import prometheus
from tests.rules.rendered import recorded

pytestmark = pytest.mark.e2e

HOUR, MINUTE = 3600, 60
RUN = "ppo/a"
ALL = dict.fromkeys(("folder", "framework", "state"), ".*")

Answer = Mapping[str, float]
"""Values by labels, as promtool writes these."""


@pytest.fixture(name="promtool", params=["2.42", "3.13"])
def _promtool(request: pytest.FixtureRequest) -> Path:
    return prometheus(request.param).tool


def asked(dashboard: Json, title: str, letter: str, **variables: str) -> str:
    """A query of a panel at the end of an hour, in points of a minute."""
    panel = next(each for each in panels_of(dashboard) if each["title"] == title)
    (target,) = (each for each in panel["targets"] if each["refId"] == letter)
    return View(0, HOUR, variables, interval=MINUTE).expression(target["expr"])


def assert_answers(
    promtool: Path, folder: Path, series: Mapping[str, str], expected: Mapping[str, Answer]
) -> None:
    """Fail unless each expression has this answer after two hours of samples of a minute.

    Half a minute later, so that the last hour has sixty of them, whether or not its first moment counts.
    """
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": "2h30s",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in answer.items()],
            }
            for expression, answer in expected.items()
        ],
    }
    file = folder / "test.yml"
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [case]}))
    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_energy_of_a_run_is_that_of_its_gpus_while_it_used_them(
    default: dict[str, Json], promtool: Path, tmp_path: Path
) -> None:
    def used(run: str, uuid: str) -> str:
        return f'rl_run_gpu{{run="{run}",instance="a:9411",gpu="0",uuid="{uuid}",by="process"}}'

    series = {
        f'rl_run_power_watts{{run="{RUN}"}}': "1440+0x120",
        'rl_run_power_watts{run="ppo/late"}': "_x90 720+0x90",
        used(RUN, "x"): "1+0x120",
        used(RUN, "y"): "1+0x120",
        used("ppo/late", "y"): "_x90 1+0x90",
        f'rl_step{{run="{RUN}"}}': "0+1x120",
        f'rl_step_tokens{{run="{RUN}"}}': "500000+0x120",
        'rl_step{run="ppo/late"}': "0+1x120",
    }
    whole, half = f'{{run="{RUN}"}}', '{run="ppo/late"}'
    gpus = default["stepwatch-gpu"]
    counts, energy, per_step, per_million = (asked(gpus, "Energy by run", letter) for letter in "ABCD")

    assert_answers(
        promtool,
        tmp_path,
        series,
        {
            counts: {whole: 2, half: 1},
            f"round({energy})": {whole: 1440, half: 372},
            f"round({per_step})": {whole: 24, half: 12},
            f"round({per_million})": {whole: 48},
        },
    )


def test_runs_of_different_length_are_compared_at_the_last_step_that_both_have(
    default: dict[str, Json], promtool: Path, tmp_path: Path
) -> None:
    series = {}
    for run, steps, rewards in (
        ("ppo/base", "0+1x120", "0+1x120"),
        ("ppo/short", "_x89 0+1x20 20+0x20", "_x89 10+1x20 30+0x20"),  # at its step 20
        ("ppo/long", "0+3x120", "0+6x120"),  # at the baseline's last step
    ):
        series |= {
            f'rl_step{{run="{run}"}}': steps,
            f'rl_ewma{{run="{run}",signal="reward",alpha="0.1"}}': rewards,
        }
    common, better = (compared(default, heading) for heading in ("common step", "vs baseline at common step"))

    base, short, long = ('{run="ppo/base"}', '{run="ppo/short"}', '{run="ppo/long"}')
    assert_answers(
        promtool,
        tmp_path,
        series,
        {
            common: {base: 120, short: 20, long: 120},
            better: {base: 0, short: 30 - 20, long: 240 - 120},
        },
    )


def compared(dashboards: dict[str, Json], heading: str, **more: float) -> str:
    """The query of a column of Compare, at the end of two hours."""
    panel = next(
        each for each in panels_of(dashboards["stepwatch-compare"]) if each["title"] == "Side by side"
    )
    letters = {
        name: field.removeprefix("Value #")
        for field, name in panel["transformations"][2]["options"]["renameByName"].items()
    }
    chosen = {"runs": ".*", "baseline": "ppo/base", "reach": "1"}
    view = View(**{"start": 0, "end": 2 * HOUR, **more}, variables=chosen, interval=MINUTE)
    (target,) = (each for each in panel["targets"] if each["refId"] == letters[heading])
    return view.expression(target["expr"])


@pytest.mark.parametrize(("start", "mean"), [(-MINUTE, 200), (-2 * HOUR, 200), (40 * MINUTE, 300)])
def test_tokens_and_gpu_hours_of_a_run_that_ended_are_those_of_its_hour(
    default: dict[str, Json], promtool: Path, tmp_path: Path, start: float, mean: float
) -> None:
    """What is served of it stays; the time on show may be longer than the run was, or begin within it."""
    ended, running = f'{{run="{RUN}"}}', '{run="ppo/on"}'
    series = {
        f'rl_run_state{{run="{RUN}",state="running"}}': "1x59 0x60",
        f'rl_run_state{{run="{RUN}",state="finished"}}': "0x59 1x60",
        f'rl_tokens_per_second{{run="{RUN}"}}': "100x29 300x90",
        f'rl_run_start_timestamp_seconds{{run="{RUN}"}}': "0x120",
        f'rl_last_step_timestamp_seconds{{run="{RUN}"}}': "0+60x60 3600x60",
        'rl_run_state{run="ppo/on",state="running"}': "1x120",
        'rl_tokens_per_second{run="ppo/on"}': "500x120",
        'rl_run_start_timestamp_seconds{run="ppo/on"}': "0x120",
        'rl_last_step_timestamp_seconds{run="ppo/on"}': "0+60x120",
    }
    for gpu in "01":
        known = f'instance="a:9411",gpu="{gpu}",uuid="{gpu}",by="process"'
        series[f'rl_run_gpu{{run="{RUN}",{known}}}'] = "1x59 _x60"
        series[f'rl_run_gpu{{run="ppo/on",{known}}}'] = "1x120"

    tokens, hours = (compared(default, heading, start=start) for heading in ("tokens", "GPU hours"))
    assert_answers(
        promtool,
        tmp_path,
        series,
        {
            f"round({tokens})": {ended: mean * HOUR, running: 500 * 2 * HOUR},
            hours: {ended: 2, running: 4},
        },
    )


@pytest.mark.parametrize(("sets", "left_out"), [(1, 0), (8, 0), (10, 2)])
def test_of_many_validation_sets_the_eight_are_shown_that_fell_furthest(
    default: dict[str, Json], promtool: Path, tmp_path: Path, sets: int, left_out: int
) -> None:
    series = {
        f'rl_validation_component{{run="{RUN}",dataset="fell-{fall}"}}': f"100+0x90 {100 - fall}+0x30"
        for fall in range(sets)
    }
    training = default["stepwatch-training"]
    falls = range(sets - 1, left_out - 1, -1)
    answers = {}
    for letter, fall in itertools.zip_longest("ABCDEFGH", falls):
        shown = asked(training, "Validation by data set", letter, run=RUN)
        answers[shown] = {} if fall is None else {f'{{dataset="fell-{fall}"}}': 100 - fall}

    assert_answers(promtool, tmp_path, series, answers)


def test_less_than_a_byte_in_a_second_is_none(
    default: dict[str, Json], promtool: Path, tmp_path: Path
) -> None:
    """Grafana calls it mB/s, which is read as megabytes."""
    series = {
        f'node_network_{way}_bytes_total{{instance="a:9100",device="eth0"}}': f"0+{rate}x120"
        for way, rate in (("receive", 12), ("transmit", 7))
    }
    series |= {'up{instance="a:9100",role="host"}': "1+0x120"}
    nodes = default["stepwatch-nodes"]
    curve, cell = (
        asked(nodes, title, letter, machine=".*")
        for title, letter in (("Network", "A"), ("Machines side by side", "H"))
    )

    assert_answers(
        promtool,
        tmp_path,
        series,
        {curve: {'{instance="a:9100",machine="a"}': 0}, cell: {'{instance="a:9100"}': 0}},
    )


def test_series_per_run_are_those_of_all_exporters(
    default: dict[str, Json], promtool: Path, tmp_path: Path
) -> None:
    series = {f'rl_step{{run="ppo/{run}"}}': "1+0x120" for run in "abc"}
    for target, samples in (("a:9410", 200), ("b:9410", 400)):
        series[f'scrape_samples_scraped{{job="runs",instance="{target}"}}'] = f"{samples}+0x120"
    series['scrape_samples_scraped{job="gpu",instance="a:9411"}'] = "900+0x120"

    asks = asked(default["stepwatch-stack"], "Series", "A")
    assert_answers(promtool, tmp_path, series, {asks: {"{}": 200}})


def test_a_card_that_is_slowed_down_has_the_reason_that_holds_longest(
    default: dict[str, Json], promtool: Path, tmp_path: Path
) -> None:
    series = {f'gpu_up{{instance="a:9411",gpu="{gpu}"}}': "1+0x120" for gpu in "012"}
    for gpu, reason, seconds in (
        ("0", "software_thermal", 30),
        ("0", "power_brake", 6),
        ("0", "power_cap", 60),
        ("1", "hardware_thermal", 0),
        ("1", "power_brake", 12),
        ("2", "power_brake", 0),
    ):
        labels = f'instance="a:9411",gpu="{gpu}",reason="{reason}"'
        series[f"gpu_clock_event_seconds_total{{{labels}}}"] = f"0+{seconds}x120"
        series[f"gpu_clock_event_active{{{labels}}}"] = "1+0x120"

    asks = asked(default["stepwatch-gpu"], "Side by side", "D", instance="a:9411")
    shown = {'{gpu="0",reason="software_thermal"}': 0.5, '{gpu="1",reason="power_brake"}': 0.2}
    assert_answers(promtool, tmp_path, series, {asks: {**shown, '{gpu="2"}': 0}})


GPU_STATES = {
    "lost": (50, "not working", "red"),
    "wanted": (41, "needs reset", "red"),
    "failing": (30, "faulty", "red"),
    "no spare": (20, "faulty", "orange"),
    "due": (14, "reset due", "orange"),
    "waits": (10, "reset due", "orange"),
    "warned": (1, "ok", "green"),
}
"""What is read of a GPU, the worst first."""


def test_a_gpu_that_needs_someone_is_not_ok(default: dict[str, Json], promtool: Path, tmp_path: Path) -> None:
    def of(name: str, gpu: str, **more: str) -> str:
        labels = {"instance": "a:9411", "gpu": gpu, **more}
        return f"{name}{{{','.join(f'{key}={json.dumps(text)}' for key, text in labels.items())}}}"

    def fires(alert: str, gpu: str, severity: str, state: str = "firing") -> str:
        return of("ALERTS", gpu, alertname=alert, severity=severity, alertstate=state)

    series = {of("gpu_up", gpu, reason="ok"): "1x120" for gpu in GPU_STATES if gpu != "lost"} | {
        of("gpu_up", "lost", reason="lost"): "0x120",
        of("gpu_recovery_action", "wanted"): "1x120",
        fires("GPURecoveryNeeded", "wanted", "critical", "pending"): "1x120",
        fires("GPUXid", "failing", "critical"): "1x120",
        of("gpu_row_remap_failed", "no spare"): "1x120",
        of("gpu_recovery_action", "due"): "4x120",
        of("gpu_row_remap_pending", "waits"): "1x120",
        fires("GPUXid", "warned", "warning"): "1x120",
    }
    gpus = default["stepwatch-gpu"]
    table, timeline = (
        next(each for each in panels_of(gpus) if each["title"] == title)
        for title in ("Side by side", "State")
    )
    (mapping,) = timeline["fieldConfig"]["defaults"]["mappings"]
    (cell,) = (each for each in table["fieldConfig"]["overrides"] if each["matcher"]["options"] == "state")
    values = {gpu: value for gpu, (value, _, _) in GPU_STATES.items()}

    assert_answers(
        promtool,
        tmp_path,
        series,
        {
            asked(gpus, "Side by side", "A", instance="a:9411"): {
                f'{{gpu="{gpu}"}}': value for gpu, value in values.items()
            },
            asked(gpus, "State", "A", instance="a:9411"): {
                '{gpu="lost",reason="lost"}' if gpu == "lost" else f'{{gpu="{gpu}"}}': value
                for gpu, value in values.items()
            },
        },
    )
    read = {value: mapping["options"][str(value)] for value in values.values()}
    assert [(value, each["text"], each["color"]) for value, each in read.items()] == [*GPU_STATES.values()]
    assert {"id": "mappings", "value": [mapping]} in cell["properties"]
    assert table["transformations"][-1]["options"]["sort"] == [{"field": "state", "desc": True}]


@pytest.mark.parametrize(
    ("used", "shown"), [("1x120", {"3"}), ("1x70 stale", set()), ("_x90 1x30", {"3"}), ("_x120", {"3", "4"})]
)
def test_gpus_of_others_are_not_shown_after_the_end_of_a_run(
    default: dict[str, Json], promtool: Path, tmp_path: Path, used: str, shown: set[str]
) -> None:
    """Those of all, if none was known as the run's in a day."""
    series = {
        'gpu_utilization_ratio{instance="a:9411",gpu="3",uuid="GPU-3"}': "0.5x120",
        'DCGM_FI_DEV_GPU_UTIL{instance="a:9411",gpu="4",UUID="GPU-4"}': "50x120",  # of NVIDIA's exporter
    }
    known = 'instance="a:9411",gpu="3",uuid="GPU-3",by="process"'
    series[f'rl_run_gpu{{run="{RUN}",{known}}}'] = used
    asks = asked(default["stepwatch-training"], "GPU utilisation", "B", run=RUN)
    # promtool has no time on show of its own
    asks = asks.replace(" @ end()", "")

    expected = {f'{{gpu="{gpu}",instance="a:9411"}}': 0.5 for gpu in shown}
    assert_answers(promtool, tmp_path, series, {asks: expected})


def test_the_traffic_of_nvlinks_is_full_once_the_shortest_rate_is_known(
    default: dict[str, Json], promtool: Path, tmp_path: Path
) -> None:
    """Samples of four minutes, where Grafana takes rates over four; a counter does not begin at 0."""
    series = {
        f'gpu_nvlink_{way}_bytes_total{{instance="a:9411",gpu="0",link="{link}"}}': "_x117 1000000+60000x9"
        for way in ("transmit", "receive")
        for link in "01"
    }

    asks = asked(default["stepwatch-gpu"], "NVLink traffic", "A", instance="a:9411")
    assert_answers(promtool, tmp_path, series, {asks: {'{gpu="0"}': 4000}})


def test_of_hundreds_of_runs_those_in_need_have_a_curve(
    default: dict[str, Json], promtool: Path, tmp_path: Path
) -> None:
    runs = [f"ppo/{number:03}" for number in range(300)]
    series = {}
    for number, run in enumerate(runs):
        series |= {
            f'rl_run_info{{run="{run}",framework="verl"}}': "1+0x120",
            f'rl_run_state{{run="{run}",state="running"}}': "1+0x120",
            f'rl_last_step_timestamp_seconds{{run="{run}"}}': f"{1000 + number}+0x120",
            f'rl_reward{{run="{run}"}}': "0.5+0x120",
        }
    sick = f'alertname="KLHigh",alertstate="firing",severity="warning",run="{runs[0]}"'
    series[f"ALERTS{{{sick}}}"] = "1+0x120"

    asks = asked(default["stepwatch-runs"], "Rewards", "A", **ALL)
    shown = [runs[0], *runs[-23:]]
    # promtool has no time on show of its own
    asks = asks.replace(" @ end()", "")
    assert_answers(promtool, tmp_path, series, {asks: {f'{{run="{run}"}}': 0.5 for run in shown}})


def fires(alert: str, severity: str, minute: int) -> dict[str, str]:
    labels = f'alertname="{alert}",severity="{severity}",run="{RUN}"'
    began = f"_x{minute - 1} {60 * minute}+0x90"
    return {
        f"rl_alert_onset_timestamp_seconds{{{labels}}}": began,
        f'ALERTS{{{labels},alertstate="firing"}}': f"_x{minute - 1} 1+0x90",
    }


AROUND = {
    "of-run": ('alertname="GPUHot",instance="n7:9411",gpu="3",topic="gpu"', "east"),
    "of-its-machine": ('alertname="DiskLow",instance="n7:9100",mountpoint="/",topic="stack"', "east"),
    "of-its-node": ('alertname="NodeLost",node="n7",topic="stack"', "east"),
    "of-its-server": ('alertname="EngineQueue",instance="n8:8000",topic="rollout"', "east"),
    "of-its-container": ('alertname="EngineGone",instance="n7/vllm",topic="rollout"', "east"),
    "of-the-stack": ('alertname="AlertingBroken",topic="stack"', ""),
    "of-prometheus": ('alertname="TSDBFailures",instance="prometheus:9090",topic="stack"', ""),
    "elsewhere": ('alertname="GPUHot",instance="n9:9411",gpu="0",topic="gpu"', "east"),
    "elsewhere-disk": ('alertname="DiskLow",instance="n9:9100",mountpoint="/",topic="stack"', "east"),
    "elsewhere-node": ('alertname="NodeLost",node="n9",topic="stack"', "east"),
    "other-run": ('alertname="Staleness",run="ppo/b",topic="rollout"', "east"),
    "other-cluster": ('alertname="GPUHot",instance="n7:9411",gpu="3",topic="gpu"', "west"),
    "other-clusters-disk": ('alertname="DiskLow",instance="w1:9100",mountpoint="/",topic="stack"', "west"),
}
"""Alerts, with their clusters; the run is in the east on node n7, with a rollout server on n8, not on n9."""
NEAR = {name for name in AROUND if name.startswith("of-")}


@pytest.mark.parametrize(
    ("role", "known", "shown"),
    [
        ("", True, NEAR | {"other-cluster", "other-clusters-disk"}),
        ("hub", True, NEAR),
        ("hub", False, NEAR | {"elsewhere", "elsewhere-disk", "elsewhere-node"}),
    ],
)
def test_around_a_run_stand_alerts_of_its_machines_and_of_the_stack(
    dashboards: Dashboards, promtool: Path, tmp_path: Path, role: str, *, known: bool, shown: set[str]
) -> None:
    """Of all machines of its cluster where its GPUs are not known. The run ended within the time on show."""
    fires = 'alertstate="firing",severity="warning"'
    series = {
        f'ALERTS{{{fires},cluster="{cluster}",{labels},name="{name}"}}': "1x120"
        for name, (labels, cluster) in AROUND.items()
    }
    for node in ("n7", "n8", "n9"):
        series[f'gpu_up{{cluster="east",instance="{node}:9411",gpu="0"}}'] = "1x120"
        series[f'up{{cluster="east",instance="{node}:9100",role="host"}}'] = "1x70 _x50"
    series[f'up{{cluster="east",instance="n8:8000",role="rollout",run="{RUN}"}}'] = "1x120"
    if known:
        series[f'rl_run_gpu{{cluster="east",run="{RUN}",instance="n7:9411",gpu="3",uuid="x"}}'] = "1x70 _x50"
    diagnose = dashboards(f"role: {role}" if role else "")["stepwatch-diagnose"]
    asks = asked(diagnose, "Around the run", "A", run=RUN, cluster="east")
    # promtool has no time on show of its own
    asks = asks.replace(" @ end()", "")

    expected = {f'{{name="{name}"}}': 1.0 for name in shown}
    assert_answers(promtool, tmp_path, series, {f"group by (name) ({asks})": expected})


def test_each_alert_about_runs_has_the_texts_of_the_runbook() -> None:
    found = {
        rule["labels"]["alertname"]: rule["labels"]
        for rule in recorded("texts")
        if rule["record"] == TEXT_INFO
    }
    of_runs = {alert.name: alert.action for alert in TABLE if alert.subject == "run"}

    assert {name: texts["action"] for name, texts in found.items()} == of_runs
    assert all(texts[part] for texts in found.values() for part in Entry._fields)
    assert "**" not in str(found)
    assert found["KLHigh"]["meaning"] == entries(CHECKOUT / "docs/runbook.md")["KLHigh"].meaning

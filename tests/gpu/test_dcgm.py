"""NVIDIA's names beside ours: what dashboards that were made for its exporter ask for, with its units."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from exporter.gpu.backend import Extras, Reading, Report
from exporter.gpu.demo import Demo
from exporter.gpu.families import DCGM_ALIASES, DCGM_LINKS, DCGM_XID, GPU_FAMILIES, DcgmWriter
from exporter.gpu.state import State
from exporter.gpu.worker import message
from tests.gpu import golden
from tests.gpu.exporter import Exporter, all_ok
from tests.real import PrometheusServer, eventually, query
from tests.runs.scrape import Scrape

HERE = '{instance=~"127.0.0.1:.*", gpu=~"(0|1|2|3|4|5|6|7)"}'
DASHBOARD = {
    f"DCGM_FI_DEV_GPU_TEMP{HERE}": 'gpu_temperature_celsius{sensor="gpu"}',
    f"DCGM_FI_DEV_POWER_USAGE{HERE}": "gpu_power_watts",
    f"DCGM_FI_DEV_SM_CLOCK{HERE} * 1000000": 'gpu_clock_hertz{domain="sm"}',
    f"DCGM_FI_DEV_GPU_UTIL{HERE} / 100": "gpu_utilization_ratio",
    f"DCGM_FI_DEV_FB_USED{HERE} * 1048576": "gpu_memory_used_bytes",
    f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{HERE}": 'gpu_pipe_active_ratio{pipe="tensor"}',
}
"""The six metrics of dashboard 12239 as it selects them, in our units, and what each must equal."""
LABELS = {"gpu", "UUID", "pci_bus_id", "device", "modelName"}
PAGE = Scrape(golden.pages()["h200-dcgm"].encode())
THEIRS = {name for name, _ in PAGE.samples if name.startswith("DCGM")}


@pytest.fixture(name="url", params=["2.42", "3.13"])
def _url(request: pytest.FixtureRequest, tmp_path: Path, start: Callable[..., Exporter]) -> Iterator[str]:
    """A Prometheus that reads the exporter."""
    exporter = start("--backend=demo", "--compat=dcgm", "--interval=0.5")
    exporter.until(all_ok)
    job = {"job_name": "gpu", "static_configs": [{"targets": [f"127.0.0.1:{exporter.port}"]}]}
    settings = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(settings))
    with PrometheusServer(request.param, tmp_path) as server:
        eventually(lambda: len(query(server.url, "DCGM_FI_DEV_GPU_TEMP")) == 8)
        yield server.url


def test_each_query_of_the_dashboard_answers_with_our_value(url: str) -> None:
    for theirs, ours in DASHBOARD.items():
        pair = "on (instance, gpu)"
        found = query(url, f"abs({theirs} - {pair} {ours}) <= {pair} 1e-6 * {ours}")

        assert sorted(each["metric"]["gpu"] for each in found) == list("01234567"), theirs


def test_every_name_is_reported_with_nvidia_s_labels() -> None:
    assert {name for alias in (*DCGM_ALIASES, DCGM_LINKS, DCGM_XID) for name in alias.names} == THEIRS
    for name, labels in PAGE.samples:
        if name.startswith("DCGM"):
            assert {label for label, _ in labels} == LABELS


def test_values_are_ours_in_their_units() -> None:
    for alias in DCGM_ALIASES:
        ours = PAGE.value(alias.metric, gpu="3", **alias.labels)
        assert ours is not None
        for name in alias.names:
            assert PAGE.value(name, device="nvidia3") == pytest.approx(ours * alias.factor, abs=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs", "read", "reported"),
    [
        (("gpu_memory_used_bytes", {}), "DCGM_FI_DEV_FB_USED", 3 * 2**20, 3),
        (("gpu_clock_hertz", {"domain": "memory"}), "DCGM_FI_DEV_MEM_CLOCK", 2.619e9, 2619),
        (("gpu_utilization_ratio", {}), "DCGM_FI_DEV_GPU_UTIL", 0.07, 7),
        (("gpu_energy_joules_total", {}), "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1.5, 1500),
        (
            ("gpu_clock_event_seconds_total", {"reason": "power_cap"}),
            "DCGM_FI_DEV_POWER_VIOLATION",
            0.25,
            250e6,
        ),
    ],
)
def test_units_are_mib_mhz_percent_mj_and_ns(
    ours: tuple[str, dict[str, str]], theirs: str, read: float, reported: float
) -> None:
    assert twice(Reading(ours[0], read, ours[1])).value(theirs) == reported


def twice(*readings: Reading, seconds: float = 2.0, then: tuple[Reading, ...] = ()) -> Scrape:
    """What is reported about one card that was read twice."""
    (card, *_), dcgm = cards(), DcgmWriter()
    dcgm.text([(card, Report(10.0, "ok", readings))])
    return Scrape(dcgm.text([(card, Report(10.0 + seconds, "ok", then or readings))]).encode())


def cards() -> list:
    demo = Demo(Extras())
    demo.open()
    return demo.cards()


def sent(mebibytes: float) -> Reading:
    return Reading("gpu_nvlink_transmit_bytes_total", mebibytes * 1e6)


def test_nvlink_is_the_rate_since_the_last_reading() -> None:
    received = Reading("gpu_nvlink_receive_bytes_total", 0)

    assert twice(sent(100), received, then=(sent(700), received)).value(DCGM_LINKS.names[0]) == 300
    assert twice(sent(100), received, then=(sent(100), received)).value(DCGM_LINKS.names[0]) == 0
    assert twice(sent(100), then=(sent(50),)).value(DCGM_LINKS.names[0]) is None
    assert twice(sent(100), seconds=0, then=(sent(100),)).value(DCGM_LINKS.names[0]) is None


def test_a_link_by_itself_and_a_part_of_a_card_have_no_name_there() -> None:
    link = Reading("gpu_nvlink_transmit_bytes_total", 1e9, {"link": "3"})
    part = Reading("gpu_mig_memory_used_bytes", 1e9, {"gpu_instance_id": "1"})

    assert twice(link, part).samples.keys() <= {(name, labels) for name, labels in twice(link).samples}


def test_the_last_xid_error_stays_also_when_the_card_is_gone() -> None:
    state, dcgm, card = State(1.0), DcgmWriter(), cards()[0]
    info = Reading("gpu_info", 1, {"name": "H200", "pci_bus_id": "0"})
    for now, report in ((0.0, Report(0.0, "ok", (info,))), (1.0, Report(1.0, "lost"))):
        state.update(json.loads(message("ok", (), [(card, report)], (), dcgm)), now, 1e9)
        found = [Scrape(state.page(now)).value(name) for name in DCGM_XID.names]
        assert found == [79 if now else 0] * 2
        state.count([(card.uuid, 13, 5.0), (card.uuid, 79, 7.0)])

    assert Scrape(state.page(1.0)).all(DCGM_XID.names[0], modelName="H200", device="nvidia0")


def test_without_the_flag_no_name_of_nvidia_s_is_reported(start: Callable[..., Exporter]) -> None:
    assert "DCGM" not in start("--backend=demo").until(all_ok).text


def test_our_metrics_of_the_table_exist_and_what_counts_is_untyped() -> None:
    known = {family.name: family.type for family in GPU_FAMILIES}
    for alias in DCGM_ALIASES:
        kind = {"gauge": "gauge", "counter": "unknown"}[known[alias.metric]]
        assert [PAGE.types[name] for name in alias.names] == [kind] * len(alias.names)

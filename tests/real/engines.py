"""Pages of vLLM and SGLang, made by the engines' own code for metrics without the engines.

Both declare their metrics in modules that need little of the engine. Those modules are taken out of the
wheel and imported; whatever else they import is replaced. So names, types, labels and buckets are the
engine's, values are not. The pages in ``tests/logs/engines`` were written by
``python -m tests.real.engines``, which downloads the wheels (1.1 GB); that of Ray Serve came from a real Ray.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import types
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import prometheus_client

PAGES = Path(__file__).parents[1] / "logs/engines"
MODEL = "Qwen/Qwen2.5-7B-Instruct"
MODULES = {
    "vllm": ("vllm/envs.py", "vllm/v1/engine/__init__.py", "vllm/v1/metrics/*"),
    "sglang": ("sglang/srt/metrics/*", "sglang/srt/observability/*", "sglang/srt/utils/gauge_histogram.py"),
}
"""What is taken out of a wheel; without what computes rather than counts."""
REPORTED_SECONDS = 25
"""More than Ray takes until its page has what a process reported."""
REPLACED = ("torch", "numpy", "msgspec", "regex", "orjson", "zmq")


class _Standing(type):
    """Class of what stands in for all that is not imported: called, subclassed or asked for anything."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __or__(cls, other: object) -> Any:
        return cls

    __ror__ = __or__

    def __getitem__(cls, key: object) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __bool__(cls) -> bool:
        return False


class StandIn(metaclass=_Standing):
    """Stands in for a function, a class, a constant or a decorator."""

    def __init_subclass__(cls, **_: object) -> None:
        """Takes the arguments of any base class."""

    def __new__(cls, *arguments: Any, **_: Any) -> Any:
        """An instance of a subclass; else what a decorator was given, or nothing in particular."""
        if cls is not StandIn:
            return object.__new__(cls)
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else StandIn


class _StandInModule(types.ModuleType):
    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the engine's modules in a folder; the others of it, and heavy libraries, are replaced."""

    def __init__(self, package: str, folder: Path) -> None:
        self._package, self._folder = package, folder

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top != self._package:
            return importlib.machinery.ModuleSpec(name, self) if top in REPLACED else None
        at = self._folder.joinpath(*name.split("."))
        for file in (at.with_suffix(".py"), at / "__init__.py"):
            if file.is_file():
                spec = importlib.util.spec_from_file_location(name, file)
                if file.name == "__init__.py":
                    spec.submodule_search_locations = [str(at)]
                return spec
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandInModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class Settings:
    """An engine's configuration, in which everything is off that is not given."""

    def __init__(self, **given: object) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        return None


VLLM = Settings(
    model_config=Settings(served_model_name=MODEL, max_model_len=32768),
    observability_config=Settings(),
    cache_config=Settings(metrics_info=lambda: {"block_size": "16"}),
)


def vllm(own: Any) -> None:
    """One server with two data-parallel ranks."""
    own.PrometheusStatLogger(VLLM, [0, 1])


def vllm_before_0_9(own: Any) -> None:
    own.PrometheusStatLogger(VLLM, 0)


def sglang(own: Any) -> None:
    """One server with two data-parallel ranks, which orders requests by priority, after one request."""

    own.get_schedule = lambda: Settings(prefill_delayer_max_delay_passes=30)
    of_model = {"model_name": MODEL}
    requests = own.TokenizerMetricsCollector(labels=of_model)
    requests.observe_one_finished_request(of_model, 12, 34, 8, 1.5, False, time_per_output_token=0.04)
    requests.observe_time_to_first_token(of_model, 0.2, stream=False)
    requests.observe_inter_token_latency(of_model, 0.5, 4)
    labels = {"engine_type": "unified", "tp_rank": 0, "pp_rank": 0, "moe_ep_rank": 0, "priority": ""}
    rank = own.SchedulerMetricsCollector(of_model | labels | {"dp_rank": 0}, None)
    waiting = own.QueueCount(3, {0: 2, 1: 1})
    for number in (0, 1):
        rank.labels["dp_rank"] = number
        rank.log_stats(own.SchedulerStats(num_running_reqs=own.QueueCount(4, {0: 4}), num_queue_reqs=waiting))
        rank.increment_retracted_reqs(1, 2, 3)


def sglang_before_0_5(own: Any) -> None:
    labels = {"model_name": MODEL}
    own.SchedulerMetricsCollector(labels).log_stats(own.SchedulerStats())
    requests = own.TokenizerMetricsCollector(labels)
    requests.observe_one_finished_request(12, 34, 8, 1.5)
    requests.observe_time_to_first_token(0.2)
    requests.observe_inter_token_latency(0.5, 4)


def vllm_in_ray_serve(own: Any) -> None:
    """The same server, which reports through the Ray that it runs on."""
    own.re = re
    own.ray_metrics = import_module("ray.util.metrics")
    logger = own.RayPrometheusStatLogger(VLLM, [0, 1])
    metrics = [each for found in vars(logger).values() for each in _leaves(found)]
    labeled = [each for each in metrics if isinstance(each, own.RayPrometheusMetric) and each._is_labeled]

    def report() -> None:
        while True:  # Ray forgets a gauge that is not set again
            for metric in labeled:
                writes = (getattr(metric, name, None) for name in ("set", "inc", "observe"))
                next(filter(None, writes))(1.0)
            time.sleep(1)

    Thread(target=report, daemon=True).start()


def _leaves(found: object) -> Iterator[object]:
    if isinstance(found, dict):
        for each in found.values():
            yield from _leaves(each)
    else:
        yield found


ENGINES: Mapping[str, tuple[str, Callable[[Any], None]]] = {
    "vllm-0.33.0": ("vllm.v1.metrics.loggers", vllm),
    "vllm-0.8.5": ("vllm.v1.metrics.loggers", vllm_before_0_9),
    "ray_vllm-0.33.0": ("vllm.v1.metrics.ray_wrappers", vllm_in_ray_serve),
    "sglang-0.5.23": ("sglang.srt.observability.metrics_collector", sglang),
    "sglang-0.4.6": ("sglang.srt.metrics.collector", sglang_before_0_5),
}
"""The module that declares each one's metrics, and what has them declared."""


def record(name: str) -> None:
    """Write the page of one engine: in a process of its own, since versions have the same modules."""
    prefix, _, version = name.partition("-")
    package = prefix.removeprefix("ray_")
    page = _ray() if prefix != package else prometheus_client.generate_latest
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "--dest", folder, f"{package}=={version}"], check=True)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            files = (
                file for file in wheel.namelist() if any(fnmatch(file, each) for each in MODULES[package])
            )
            wheel.extractall(folder, files)
        sys.meta_path.insert(0, finder := _Finder(package, folder))
        module, declare = ENGINES[name]
        own = import_module(module)
        sys.meta_path.remove(finder)
        declare(own)
    (PAGES / f"{name}.prom").write_bytes(b"".join(_own(page(), prefix)))


def _ray() -> Callable[[], bytes]:
    """Start a Ray of this process's own. Returns what gives its page, once that has what was reported."""
    ray = import_module("ray")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100_000_000, _metrics_export_port=port)

    def page() -> bytes:
        time.sleep(REPORTED_SECONDS)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return bytes(answer.read())

    return page


def _own(page: bytes, prefix: str) -> Iterator[bytes]:
    """Yield the engine's lines, without those that say when a series was made."""
    for line in page.splitlines(keepends=True):
        words = line.split(maxsplit=3)
        name = words[2] if line.startswith(b"#") else words[0]
        if name.startswith(prefix.encode()) and b"_created" not in name and words[1] != b"HELP":
            yield line


if __name__ == "__main__":
    if len(sys.argv) > 1:
        record(sys.argv[1])
    else:
        from tests.real import environments  # not in Ray's environment

        PAGES.mkdir(exist_ok=True)
        for each in ENGINES:
            python = environments.programs("rl-insight") / "python" if "ray" in each else sys.executable
            subprocess.run(
                [python, __file__, each], check=True, env={**os.environ, "RAY_AUTH_MODE": "disabled"}
            )

"""Metrics pages of the demo beside its logs: nodes of Ray, a trainer's own page, and whose the GPUs are.

Prometheus finds them as it finds Ray: by a list of targets, written anew every few seconds.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from demo.scenario import healthy
from demo.servers import NEXT_TOKEN, reached
from exporter.gpu.backend import Settings
from exporter.gpu.demo import Demo

RAY_LIST = Path(".ray/prom_metrics_service_discovery.json")
"""Where the list of targets is, below the folder of the demo."""
LIST_SECONDS = 5.0
"""As often as Ray writes its own: one that is a minute old is that of a cluster which has ended."""

GB = 10**9
NODES = 2
NODE_MEMORY, NODE_DISK, STORE = 512 * GB, 4000 * GB, 150 * GB
CYCLE_SECONDS = 120.0
"""In which objects of batches fill the store of a node, and are freed again."""

STEP_SECONDS = 3.0
"""Of the trainer that has a page alone: a page shows the present only, and is read every few seconds."""
SAMPLES = 8
"""Samples of a step that the page's histogram counts."""
GPU_MEMORY = 62 * GB


class Node:
    """What Ray reports of one of its nodes: busy, with room in memory and on disk, and nothing spilled."""

    def __init__(self, number: int) -> None:
        self.registry = CollectorRegistry()
        self._phase = number / NODES
        ip = f"10.0.0.{number + 1}"

        def gauge(name: str, text: str, **labels: str) -> Gauge:
            made = Gauge(f"ray_{name}", text, list(labels), registry=self.registry)
            return made.labels(**labels) if labels else made

        gauge("node_mem_total", "Memory of the node.", ip=ip).set(NODE_MEMORY)
        gauge("node_disk_usage", "Disk in use.", ip=ip).set(NODE_DISK * (0.4 + 0.1 * number))
        gauge("node_disk_free", "Disk that is free.", ip=ip).set(NODE_DISK * (0.6 - 0.1 * number))
        spilled = {"Location": "SPILLED", "ObjectState": "SEALED"}
        gauge("object_store_memory", "Objects, by where they are.", **spilled).set(0)
        killed = Counter(
            "ray_memory_manager_worker_eviction",
            "Workers killed for lack of memory.",
            ("Type", "Name"),
            registry=self.registry,
        )
        killed.labels(Type="MemoryManager.TaskEviction.Total", Name="")
        self._cpu = gauge("node_cpu_utilization", "Percent of the processors in use.", ip=ip)
        self._memory = gauge("node_mem_used", "Memory in use.", ip=ip)
        self._used = gauge("object_store_used_memory", "Objects in the store.")
        self._room = gauge("object_store_available_memory", "Room that is left in the store.")

    def advance(self, now: float) -> None:
        """Bring the metrics to this time."""
        filled = (now / CYCLE_SECONDS + self._phase) % 1
        objects = STORE * (0.1 + 0.5 * filled)
        self._used.set(objects)
        self._room.set(STORE - objects)
        self._memory.set(0.3 * NODE_MEMORY + objects)
        self._cpu.set(45 + 20 * math.sin(2 * math.pi * filled))


class TrainerPage:
    """The metrics of tutorials for verl, of a trainer that has no log."""

    def __init__(self, seed: int) -> None:
        self.registry = CollectorRegistry()
        self._dice = Random(f"{seed} page")  # noqa: S311 - a simulation, no secret
        self._step = 0
        self._reward = Gauge("verl_average_reward", "Mean reward of a step.", registry=self.registry)
        self._steps = Counter("verl_training_steps", "Steps so far.", registry=self.registry)
        self._seconds = Histogram(
            "verl_sample_generation_seconds",
            "Time to generate a sample.",
            buckets=tuple(10 * bound for bound in NEXT_TOKEN),
            registry=self.registry,
        )
        memory = Gauge("verl_gpu_memory_used_bytes", "GPU memory in use.", registry=self.registry)
        memory.set_function(lambda: GPU_MEMORY)

    def advance(self, now: float) -> None:
        """Take the steps until this time."""
        while self._step * STEP_SECONDS <= now:
            level = healthy(10 * self._step)
            self._step += 1
            self._steps.inc()
            self._reward.set(level.score + self._dice.gauss(0, 0.02))
            for _ in range(SAMPLES):
                self._seconds.observe(level.length / 300 * self._dice.lognormvariate(0, 0.4))


class Pages:
    """All pages, each on a free port.

    Args:
        folder: The folder of the demo, which gets the list.
        listen: Where the pages listen.
        seed: The same gives the same numbers.
        run: The run that uses the simulated GPUs. The run exporter reports the GPUs of its machine, of which
            simulated ones are no part.

    Raises:
        OSError: The address is not available.
    """

    def __init__(self, folder: Path, listen: str, seed: int, run: str) -> None:
        self._list, self._now, self._due = folder / RAY_LIST, 0.0, 0.0
        nodes, page = [Node(number) for number in range(NODES)], TrainerPage(seed)
        self._advancing: tuple[Node | TrainerPage, ...] = (*nodes, page)
        gpus = Gauge(
            "rl_run_node_gpu_info",
            "A GPU of the machine on which the run runs; always 1.",
            ("run", "uuid"),
            registry=nodes[0].registry,
        )
        simulated = Demo(Settings())
        for number in range(simulated.open()[0]):
            gpus.labels(run=run, uuid=simulated.card(number).uuid).set(1)
        servers = [start_http_server(0, listen, each.registry)[0] for each in self._advancing]
        self.addresses = tuple(f"{reached(listen)}:{server.server_port}" for server in servers)
        """Of the nodes, then of the trainer."""

    def tick(self, seconds: float) -> None:
        """Let this time pass.

        Raises:
            OSError: The list cannot be written.
        """
        self._now += seconds
        for each in self._advancing:
            each.advance(self._now)
        if self._now >= self._due:
            self._due = self._now + LIST_SECONDS
            self._list.parent.mkdir(parents=True, exist_ok=True)
            new = self._list.with_suffix(".new")
            new.write_text(json.dumps([{"labels": {"job": "ray"}, "targets": self.addresses}]))
            new.replace(self._list)

    def remove(self) -> None:
        """Leave no list behind."""
        self._list.unlink(missing_ok=True)

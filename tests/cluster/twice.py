"""The same runs and GPUs, watched by one machine and by a hub with an agent, at the default intervals."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import Self

from tests.e2e.writer import writing
from tests.gpu.driver import Driver
from tests.native.installation import Installation, made, python_module
from tests.own_logs import HEALTHY, QUIET, SICK, TRUNCATED
from tests.real import WebhookSink, query
from tests.real.waiting import eventually

ALONE, HUB = "one machine", "hub and agent"
HUNG = {ALONE: "ExporterDown", HUB: "NodeLost"}
"""What a suspended run exporter raises: that of an agent sends all of its node's samples."""
NODE = "node-7"

Alert = tuple[str, ...]
"""Its name, run, GPU and job."""
LABELS = ("alertname", "run", "gpu", "job")
FIRED = f'count by ({", ".join(LABELS)}) (last_over_time(ALERTS{{alertstate="firing"}}[30m]))'


class Twice:
    """Both, up while a ``with`` block runs, each with a webhook as receiver."""

    def __init__(self, folder: Path) -> None:
        self._driver = Driver(folder)
        self._driver.install()
        self._sinks = {ALONE: WebhookSink(), HUB: WebhookSink()}
        self._machines: dict[str, Installation] = {}
        for name in ("alone", "hub", "agent"):
            (folder / name).mkdir()
            self._machines[name] = made(folder / name, "newest")
        self._runs = self._machines["alone"].folder / "my runs"
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            for sink in self._sinks.values():
                opened.enter_context(sink)
            self._runs.mkdir()
            (self._machines["agent"].folder / "my runs").symlink_to(self._runs)
            for name in ("alone", "agent"):
                self._machines[name].environment.update(self._driver.environment)
            self._up("alone", opened, receivers=_receiver(self._sinks[ALONE]))
            hub = self._machines["hub"]
            hub.environment["STEPWATCH_SECRETS"] = str(hub.folder / "secrets")
            self._up("hub", opened, role="hub", receivers=_receiver(self._sinks[HUB]))
            password = hub.run("agent", NODE, "--config", str(hub.config))
            assert password.returncode == 0, password.stderr
            agent = self._machines["agent"]
            (agent.folder / "password").write_text(password.stdout)
            url = f"http://127.0.0.1:{hub.ports['agents']}"
            self._up("agent", opened, role="agent", node=NODE, hub={"url": url, "password_file": "password"})
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _up(self, name: str, opened: ExitStack, **settings: object) -> None:
        machine = self._machines[name]
        machine.configure(yaml.safe_dump({"discovery": {"ray": None}, **settings}))
        opened.callback(machine.run, "down")
        done = machine.up()
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"

    def go_wrong(self) -> None:
        """Have runs, GPUs and the reading of logs go wrong, until both have sent notifications of them."""
        self._train()
        eventually(lambda: all(self._answers("count(rl_step) == 4").values()))
        self._driver.tell("gpus=8", "xid=3:79:1", "lost=5:15")
        self._wait_until_notified("KLExplosion", "Truncation", "RunVanished", "GPUXid", "GPULost")
        self._suspend_run_exporters()
        eventually(lambda: HUNG.items() <= self._hung().items(), pause=1, seen=self._hung)

    def _train(self) -> None:
        """Have four trainers log: two go sick, one is killed, one is well."""
        for source, name, until in (
            (SICK, "sick", "--stay"),
            (TRUNCATED, "truncated", "--stay"),
            (HEALTHY, "healthy", "--stay"),
            (QUIET, "killed", "--steps=30"),
        ):
            self._open.enter_context(writing(source, self._runs / f"{name}.log", "--rate=1", until))

    def _suspend_run_exporters(self) -> None:
        """Stop them as a hung disk would."""
        for name in ("alone", "agent"):
            for pid in self._machines[name].parts():
                if python_module(pid) == "exporter.runs":
                    os.kill(pid, signal.SIGSTOP)
                    self._open.callback(os.kill, pid, signal.SIGCONT)

    def _hung(self) -> dict[str, str]:
        """What each was notified of an exporter that hangs."""
        came = self.came()
        return {place: name for place, name in HUNG.items() if name in {each for each, *_ in came[place]}}

    def _wait_until_notified(self, *names: str) -> None:
        def missing() -> dict[str, set[str]]:
            return {place: set(names) - {name for name, *_ in came} for place, came in self.came().items()}

        eventually(lambda: not any(missing().values()), pause=1, seen=missing)

    def _answers(self, promql: str) -> dict[str, list[dict[str, Any]]]:
        """What the Prometheus of each answers."""
        servers = {ALONE: self._machines["alone"], HUB: self._machines["hub"]}
        return {place: query(machine.url("prometheus"), promql) for place, machine in servers.items()}

    def fired(self) -> dict[str, set[Alert]]:
        """Each alert that fires or did."""
        return {
            place: {_alert(each["metric"]) for each in answer}
            for place, answer in self._answers(FIRED).items()
        }

    def came(self) -> dict[str, dict[Alert, float]]:
        """When each alert came first to the receiver of each, in Unix seconds."""
        return {place: _first(sink) for place, sink in self._sinks.items()}


def _receiver(sink: WebhookSink) -> list[object]:
    return [{"name": "sink", "webhook": {"url": sink.url}}]


def _first(sink: WebhookSink) -> dict[Alert, float]:
    messages = reversed(list(sink.received))  # the first has the last word
    return {_alert(alert["labels"]): message.at for message in messages for alert in message.alerts}


def _alert(labels: Mapping[str, str]) -> Alert:
    return tuple(labels.get(name, "") for name in LABELS)

"""The run exporter as a whole: its parts, put together as the options say."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from exporter.http.host_check import HostCheck
from exporter.http.routes import Routes
from exporter.http.server import Server, ServerThread
from exporter.runs.collector import Collector, Settings
from exporter.runs.discovery import ray, verl
from exporter.runs.discovery.address import AddressMap, Allowlist
from exporter.runs.discovery.document import Root
from exporter.runs.discovery.http_sd import Discovery
from exporter.runs.discovery.log_targets import LogTargets
from exporter.runs.discovery.patient import Patient
from exporter.runs.discovery.target_registry import Source
from exporter.runs.light.site import Light
from exporter.runs.model.lifecycle import Silence
from exporter.runs.model.raw_keys import RawRule
from exporter.runs.model.run import Options
from exporter.runs.overview.models import Omitted
from exporter.runs.overview.overview import Overview
from exporter.runs.overview.panels import PanelFile
from exporter.runs.registrations.api import Api
from exporter.runs.registrations.registry import Registry
from exporter.runs.registrations.store import Store
from exporter.runs.registrations.token import Token
from exporter.runs.serve import endpoints

MOST_BODY = 1 << 16
"""Bytes of a request's body."""


class App:
    """Watches runs, finds servers, and answers; ``look`` is called again and again.

    ``panels`` is the file of panels. Raises ``OSError`` if it cannot listen.
    """

    def __init__(self, options: Namespace, panels: Path, stopped: Callable[[], bool]) -> None:
        self._registry = Registry(Store(options.state_dir, options.discovery_allow))
        self._watch = Collector(_settings(options, self._registry), stopped=stopped)
        urls = {
            "url": options.prometheus_url,
            "watchdog": options.watchdog_url,
            "alertmanager": options.alertmanager_url,
        }
        self._overview = Overview(self._watch.views, PanelFile(panels), omitted=self._omitted, **urls)
        self._discovery = _discovery(options, self._watch, self._registry)
        api = _api(options, self._registry)
        light = Light(self._overview, options.path)
        own = endpoints.table(self._watch.metrics, self._watch.mark, self._watch.health.report)
        routes = Routes({**own, **self._discovery.routes(), **api.routes(), **light.routes()})
        pages = HostCheck(routes, {*options.hosts, options.listen})
        server = Server((options.listen, options.port), pages, MOST_BODY)
        parts = (server, self._overview, self._discovery, api, self._registry, self._watch.registered)
        self._watch.health.others += [part.samples for part in parts]
        self._server = ServerThread(server)

    def start(self) -> None:
        """Begin what goes on in the background."""
        for part in (self._server, self._watch, self._overview, self._discovery):
            part.start()

    def look(self) -> float:
        """Read what is new; returns for how many seconds nothing more is to be done."""
        more = self._watch.look()
        self._registry.tend()
        return 0 if more else self._watch.settings.poll

    def _omitted(self) -> Omitted:
        health = self._watch.health
        left = health.left_out
        return Omitted(
            not self._watch.caught_up,
            health.dormant,
            left["running"],
            left["ended"],
            health.files["left_out"],
            tuple(health.hung),
        )

    def stop(self) -> None:
        """Answer no more, and keep of what was taken until then what a restart could not rebuild."""
        for part in (self._server, self._overview, self._discovery):
            part.stop()
        self._watch.save()
        self._registry.save()


def _settings(options: Namespace, registry: Registry) -> Settings:
    return Settings(
        paths=tuple(options.path),
        state_folder=options.state_dir,
        forget_after=options.forget_after,
        silence=Silence(options.silence, options.silence_intervals),
        options=Options(
            options.hold,
            options.signals,
            RawRule(options.raw_allow, options.raw_limit),
            overrides=options.overrides,
        ),
        targets=(*options.pages, *options.mlflow),
        registered=registry.trainers,
        reached=AddressMap(options.loopback).of_prometheus,
        poll_targets=options.poll,
    )


def _api(options: Namespace, registry: Registry) -> Api:
    ports = {"prometheus_port": options.prometheus_port, "grafana_port": options.grafana_port}
    return Api(registry, options.discovery_allow, Token(options.token_file), ports)


def _patient(watch: Collector, source: Source) -> Patient:
    patient = Patient(source)
    watch.hangable.append(patient.thread)
    return patient


def _discovery(options: Namespace, watch: Collector, registry: Registry) -> Discovery:
    gate, root = Allowlist(options.discovery_allow), Root(options.discovery_root)
    in_logs = LogTargets(gate)
    watch.listeners.append(in_logs.take)
    files, folder = list(options.discovery_files), options.discovery_ray
    # the last one's labels count: anyone who may register must not take a server away from its run
    sources: list[Source] = [
        registry,
        _patient(
            watch, verl.VerlFiles([*files, *([str(folder / verl.USUAL)] if folder else [])], gate, root)
        ),
    ]
    sources += [_patient(watch, ray.RayFile(folder / ray.USUAL, gate, root))] if folder else []
    sources.append(in_logs)
    way, forget_after = AddressMap(options.loopback), options.discovery_forget_after
    discovery = Discovery(sources, gate, forget_after, way, lambda: watch.caught_up)
    registry.silence = discovery.silence
    watch.listeners.append(lambda views, _: registry.heed(watch.registered.shown(views)))
    return discovery

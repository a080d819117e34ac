"""``python -m exporter.runs --path FOLDER``: serve statistics of training runs to Prometheus."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from exporter.options import Flags, cannot_listen, port, positive, stopped_by_signal
from exporter.routes import Routes
from exporter.runs import arguments, site
from exporter.runs.lifecycle import Silence
from exporter.runs.notice import to_log
from exporter.runs.raw import RawRule
from exporter.runs.registered.api import Api
from exporter.runs.registered.ledger import Ledger
from exporter.runs.registered.registry import Registry
from exporter.runs.registered.token import Token
from exporter.runs.rollouts import ray, verl
from exporter.runs.rollouts.address import Allowed
from exporter.runs.rollouts.discovery import Discovery
from exporter.runs.rollouts.gate import Gate
from exporter.runs.rollouts.in_logs import InLogs
from exporter.runs.rollouts.links import Root
from exporter.runs.rollouts.target import Source
from exporter.runs.rollouts.way import Way
from exporter.runs.run import Options
from exporter.runs.serving import Serving
from exporter.runs.watch import Settings, Watch
from exporter.server import Server
from exporter.settings import SettingsFile

MOST_BODY = 1 << 16
"""Bytes of a request."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the exporter until SIGTERM or SIGINT. Returns the exit code."""
    settings = SettingsFile.named()
    options = _options(settings, argv)
    stop = stopped_by_signal()
    registry = Registry(Ledger(options.state_dir, options.discovery_allow, to_log))
    watch = Watch(_settings(options, registry), stopped=stop.is_set)
    discovery = _discovery(options, watch, registry)
    api = _api(options, registry)
    try:
        server = Server((options.listen, options.port), _pages(watch, discovery, api), MOST_BODY)
    except OSError as error:
        print(cannot_listen(options, error), file=sys.stderr)
        return 2
    watch.health.others += [server.samples, discovery.samples, api.samples, registry.samples]
    watch.health.others.append(watch.trainers.samples)
    serving = Serving(server)
    serving.start()
    watch.start()
    discovery.start()
    print(
        f"http://{options.listen}:{options.port}/metrics shows the runs of {', '.join(options.path)}",
        flush=True,
    )
    while not stop.is_set():
        more = watch.look()
        registry.tend()
        stop.wait(0 if more else watch.settings.poll)
        if settings.changed() and _usable(settings, argv):
            watch.save()
            registry.save()
            _start_again()
    watch.save()
    registry.save()
    serving.stop()
    return 0


def _pages(watch: Watch, discovery: Discovery, api: Api) -> Routes:
    return Routes({**site.table(watch.metrics, watch.mark), **discovery.routes(), **api.routes()})


def _api(options: argparse.Namespace, registry: Registry) -> Api:
    token = Token(options.token_file)
    if problem := token.problem():
        to_log(problem)
    ports = {"prometheus_port": options.prometheus_port, "grafana_port": options.grafana_port}
    return Api(registry, options.discovery_allow, token, ports)


def _discovery(options: argparse.Namespace, watch: Watch, registry: Registry) -> Discovery:
    gate, root = Gate(options.discovery_allow), Root(options.discovery_root)
    in_logs = InLogs(gate)
    watch.listeners.append(in_logs.take)
    files, folder = list(options.discovery_files), options.discovery_ray
    sources: list[Source] = [
        verl.VerlFiles([*files, *([str(folder / verl.USUAL)] if folder else [])], gate, root)
    ]
    sources += [ray.RayFile(folder / ray.USUAL, gate, root)] if folder else []
    sources += [registry, in_logs]
    way, forget_after = Way(options.loopback), options.discovery_forget_after
    discovery = Discovery(sources, gate, forget_after, way, lambda: watch.caught_up)
    registry.silence = discovery.silence
    watch.listeners.append(lambda views, _: registry.heed(watch.trainers.shown(views)))
    return discovery


def _options(settings: SettingsFile, argv: Sequence[str] | None) -> argparse.Namespace:
    return _parser({**settings.values(), **os.environ}).parse_args(argv)


def _usable(settings: SettingsFile, argv: Sequence[str] | None) -> bool:
    """Whether new settings can be used; if not, what is wrong is told and the old ones stay."""
    try:
        _options(settings, argv)
    except SystemExit:
        print(f"{settings.path} cannot be used; the old settings stay.", file=sys.stderr)
        return False
    return True


def _start_again() -> None:
    # A state file and the logs hold all that matters, so that a fresh start is the simplest change.
    print("New settings: starting again with them.", flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "exporter.runs", *sys.argv[1:]])  # noqa: S606


def _settings(options: argparse.Namespace, registry: Registry) -> Settings:
    return Settings(
        paths=tuple(options.path),
        state_folder=options.state_dir,
        forget_after=options.forget_after,
        silence=Silence(options.silence, options.silence_intervals),
        options=Options(options.hold, options.signals, RawRule(options.raw_allow, options.raw_limit)),
        targets=(*options.pages, *options.mlflow),
        trainers=registry.trainers,
        reached=Way(options.loopback).of_prometheus,
        poll_targets=options.poll,
    )


def _parser(variables: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m exporter.runs",
        description="Serve statistics over training steps to Prometheus. "
        "Each flag is also a variable: STEPWATCH_PATH, STEPWATCH_PORT, ... The file that STEPWATCH_SETTINGS "
        "names may give them as well, in lines NAME=value; it is heeded again when it changes.",
    )
    flags = Flags(parser, "STEPWATCH_", variables)
    flags.add("path", str, "./runs", "run folders, log files or globs to read", nargs="+")
    flags.add("port", port, 9410, "port to serve on")
    flags.add("listen", str, "127.0.0.1", "address to serve on")
    flags.add("state-dir", Path, None, "folder that keeps what a restart could not rebuild")
    flags.add("hold", positive, 15.0, "seconds for which extremes are held: three scrape intervals")
    flags.add("forget-after", positive, 43200.0, "seconds after which a silent or ended run leaves")
    _add_meanings(flags)
    _add_targets(flags)
    _add_discovery(flags)
    flags.add("silence", positive, 600.0, "least seconds without a step that count as silence")
    flags.add("silence-intervals", positive, 5.0, "typical step intervals that count as silence")
    return parser


def _add_meanings(flags: Flags) -> None:
    flags.add("signals", arguments.signals, {}, 'more keys by signal, as JSON: {"reward": ["my/score"]}')
    flags.add("raw-allow", arguments.patterns, ("*",), "keys that may be shown as they are, as JSON")
    flags.add("raw-limit", arguments.count, 40, "how many of them a run may have")


def _add_targets(flags: Flags) -> None:
    page = '[{"url": "http://host:9092/metrics"}]'
    server = '[{"url": "http://host:5000", "experiments": ["ppo"]}]'
    flags.add("poll", positive, 5.0, "seconds between two looks at pages and servers")
    flags.add("pages", arguments.pages, (), f"trainers' pages, as JSON: {page}")
    flags.add("mlflow", arguments.servers, (), f"tracking servers, as JSON: {server}")


def _add_discovery(flags: Flags) -> None:
    flags.add("discovery-allow", arguments.networks, Allowed(), "networks that servers may lie in, as JSON")
    flags.add("discovery-ray", Path, None, "Ray's folder, such as /tmp/ray")
    flags.add("discovery-files", arguments.patterns, (), "files or globs of what verl writes, as JSON")
    flags.add("discovery-root", Path, Path("/"), "where the file system is seen that links in those are of")
    flags.add("discovery-forget-after", positive, 600.0, "seconds after which a lost server leaves")
    flags.add("token-file", Path, None, "file with the token that clients must show to register servers")
    flags.add("prometheus-port", port, None, "port of Prometheus, which clients may ask for")
    flags.add("grafana-port", port, None, "port of Grafana, which clients may ask for")
    flags.add("loopback", str, "", "the name by which containers reach the machine that they run on")


if __name__ == "__main__":
    sys.exit(main())

"""The options of the run exporter; checks raise ``ArgumentTypeError``."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from exporter.options import (
    CommandLine,
    Served,
    not_negative,
    number,
    positive,
    setting,
    string,
    switch,
)
from exporter.options import (
    port as port_number,
)
from exporter.runs.alerting_health import DEFAULTS
from exporter.runs.overview import panels
from exporter.runs.pages.mlflow import Mlflow
from exporter.runs.pages.page import Page
from exporter.runs.pages.web import is_usable
from exporter.runs.serve.metrics import Override, Overrides
from exporter.runs.signals import NAMES
from exporter.runs.signals.key import KeyFault, Keys, keys_of
from exporter.runs.stats.catalogue import Own
from exporter.runs.targets.target import Allowed
from exporter.secret_shapes import masked, masked_url

T = TypeVar("T")


def signals(value: object) -> Keys:
    """Check more keys by signal."""
    table = _json(value, dict, "a table of signals and keys")
    unknown = [name for name in table if name not in NAMES]
    if unknown:
        raise ArgumentTypeError(f"{unknown[0]!r} is not a signal. Expected one that docs/metrics.md lists.")
    try:
        return keys_of(table)
    except (KeyFault, TypeError) as problem:  # or no list of keys
        raise ArgumentTypeError(f"{value!r}: {problem}") from None


def labels(value: object) -> Mapping[str, str]:
    """Check labels and their values."""
    found = _json(value, dict, "a table of labels")
    _texts(list(found.values()))
    return found


def patterns(value: object) -> tuple[str, ...]:
    """Check patterns of keys, or of paths."""
    return _texts(_json(value, list, "a list of patterns"))


def overrides(value: object) -> Overrides:
    """Check limits that some runs have."""
    try:
        return Overrides([Override.read(each) for each in _json(value, list, "a list of overrides")])
    except ValueError as problem:
        raise ArgumentTypeError(str(problem)) from problem


def alerting(value: object) -> Mapping[str, Any]:
    """Check the settings of the alert about the stack that alerts."""
    found = _json(value, dict, "a table of settings")
    if unknown := sorted(found.keys() - DEFAULTS.keys()):
        raise ArgumentTypeError(f"{unknown[0]!r} is not a setting. Expected {' or '.join(DEFAULTS)}.")
    for name, each in found.items():
        if name.endswith("_interval"):
            positive(each)
        elif not isinstance(each, type(DEFAULTS[name])):
            raise ArgumentTypeError(
                f"{name}: {each!r} has another type. Expected one like {DEFAULTS[name]!r}."
            )
    return found


def hub(value: object) -> Mapping[str, Any]:
    """Check where an agent sends its samples, and how it signs in."""
    found = _json(value, dict, "a table of settings")
    if found and not (is_usable(str(found.get("url"))) and (found.get("token_file") or "username" in found)):
        raise ArgumentTypeError("It lacks url, or token_file or username. Expected them as in config.yaml.")
    return found


def own(value: object) -> Own:
    """Check what alerts of users' own look at."""
    try:
        return Own.read(_json(value, dict, "a table with statistics, keys and drawn"))
    except ValueError as problem:
        raise ArgumentTypeError(f"{value!r}: {problem}. Expected it as generate.py writes it.") from problem


def networks(value: object) -> Allowed:
    """Check the networks that targets may lie in."""
    try:
        return Allowed(_texts(_json(value, list, "a list of networks")))
    except ValueError as problem:
        raise ArgumentTypeError(f"{value!r}: {problem}") from problem


def address(value: object) -> str:
    """Check the address of a server."""
    if not (isinstance(value, str) and is_usable(value)):
        raise ArgumentTypeError(
            f"{masked_url(str(value))} is not an address. "
            "Expected one such as http://127.0.0.1:9090, without a user name."
        )
    return value


def _targets(make: Callable[..., T], value: object) -> tuple[T, ...]:
    try:
        return tuple(make(**fields) for fields in _json(value, list, "a list of tables"))
    except (TypeError, ValueError, AttributeError) as problem:  # of another form, or not texts
        raise ArgumentTypeError(f"{masked(str(value))!r}: {masked(str(problem))}") from problem


pages = partial(_targets, Page)  # Pages to poll
servers = partial(_targets, Mlflow)  # Tracking servers to poll


def _texts(found: Any) -> tuple[str, ...]:
    if isinstance(found, list) and all(isinstance(text, str) for text in found):
        return tuple(found)
    raise ArgumentTypeError(f'{found!r} is not a list of texts. Expected one such as ["my/score"].')


def _json(value: object, kind: type[T], expected: str) -> T:
    """Return the value of a flag's text, or of a file; it must be of this kind."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError as problem:
        raise ArgumentTypeError(
            f"{masked(str(value))!r} is not JSON: {problem}. Expected {expected}."
        ) from problem
    if not isinstance(found, kind):
        raise ArgumentTypeError(f"{masked(str(value))!r} is not {expected}. Expected {expected}.")
    return found


_PAGE = '[{"url": "http://host:9092/metrics"}]'
_SERVER = '[{"url": "http://host:5000", "experiments": ["ppo"]}]'


@dataclass(frozen=True)
class Settings(Served):
    """The settings of the run exporter, as flags and file have them; durations in seconds."""

    port: int = setting(port_number, 9410, "port to serve on")
    path: Sequence[str] = setting(string, ("./runs",), "run folders, log files or globs to read", many=True)
    state_dir: Path | None = setting(Path, None, "folder for state that a restart cannot rebuild")
    hold: float = setting(positive, 15.0, "seconds for which extremes are kept: three scrape intervals")
    forget_after: float = setting(positive, 43200.0, "seconds after which a silent or ended run is removed")
    signals: Keys = setting(signals, {}, 'more keys by signal, as JSON: {"reward": ["my/score"]}')
    own: Own = setting(own, Own(), "what alerts of your own look at, as JSON")
    raw_allow: tuple[str, ...] = setting(
        patterns, ("*",), "keys that may be exported under the trainer's names, as JSON"
    )
    overrides: Overrides = setting(overrides, Overrides(), "limits that some runs have, as JSON")
    raw_limit: int = setting(number, 40, "maximum number of these keys per run")
    poll: float = setting(positive, 5.0, "seconds between two polls of pages and servers")
    pages: tuple[Page, ...] = setting(pages, (), f"trainers' pages, as JSON: {_PAGE}")
    mlflow: tuple[Mlflow, ...] = setting(servers, (), f"tracking servers, as JSON: {_SERVER}")
    discovery_allow: Allowed = setting(networks, Allowed(), "networks of allowed servers, as JSON")
    discovery_ray: Path | None = setting(Path, None, "Ray's folder, such as /tmp/ray")
    discovery_lists: Sequence[str] = setting(
        string, (), "more lists of targets as Ray writes them, as the demo does", many=True
    )
    discovery_files: tuple[str, ...] = setting(patterns, (), "files or globs of what verl writes, as JSON")
    discovery_root: Path = setting(
        Path, Path("/"), "mount point of the file system that links in these files refer to"
    )
    discovery_forget_after: float = setting(positive, 600.0, "seconds after which a lost server is removed")
    loopback: str = setting(string, "", "name by which containers reach their host")
    token_file: Path | None = setting(
        Path, None, "file with the token that clients must show to register servers"
    )
    prometheus_port: int | None = setting(port_number, None, "port of Prometheus, given to clients that ask")
    grafana_port: int | None = setting(port_number, None, "port of Grafana, given to clients that ask")
    prometheus_url: str | None = setting(address, None, "the Prometheus that watches the runs")
    hub: Mapping[str, Any] = setting(
        hub, {}, "where an agent forwards what its Prometheus writes, as JSON like hub in config.yaml"
    )
    runs_of_agents: bool = setting(switch, default=False, text="show the runs of agents, on a hub")
    agents_page: str = setting(string, "", "URL of such a run elsewhere, with {node}, {run} and {cluster}")
    alertmanager_url: str | None = setting(address, None, "the Alertmanager, whose silences the pages show")
    password_file: Path | None = setting(Path, None, "file with the password of the user internal of both")
    external_labels: Mapping[str, str] = setting(labels, {}, "labels that Prometheus adds to alerts, as JSON")
    alerting: Mapping[str, Any] | None = setting(
        alerting, None, "how to report faults of the stack that alerts, as JSON"
    )
    alerting_disks: Sequence[str] = setting(
        string, (), "folders with its state, whose room is checked then", many=True
    )
    actions_url: str | None = setting(address, None, "the bridge, whose actions the pages show")
    panels: Path | None = setting(Path, None, f"panels to draw; by default {panels.NAME} beside the settings")
    silence: float = setting(positive, 600.0, "minimum seconds without a step that count as silence")
    silence_intervals: float = setting(not_negative, 5.0, "typical step intervals that count as silence")


def command_line(arguments: Sequence[str] | None = None) -> CommandLine[Settings]:
    """Return the options, of these flags or of those of this process."""
    text = "Serve statistics over training steps to Prometheus."
    return CommandLine("python -m exporter.runs", text, Settings, arguments)

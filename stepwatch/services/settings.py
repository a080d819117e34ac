"""Whether a part runs the settings that were rendered for it, and how Alertmanager reads them again."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from stepwatch.schema.errors import Refused
from stepwatch.system import http_client


class SettingsState(Enum):
    """How a part's running settings relate to the files; the value is the word that `status` shows."""

    CURRENT = "current"
    CHANGED = "changed since"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Settings:
    """Files (globs) that a part reads on SIGHUP, and the metric's start that reports it (or it restarts)."""

    folder: str
    files: tuple[str, ...]
    metric: str = ""
    itself: bool = False

    def changed(self) -> float:
        """When the last of the files was written or removed, in Unix seconds."""
        paths = set()
        for pattern in self.files:
            files = list(Path(self.folder).glob(pattern))
            paths.update(files)
            if "*" in pattern:  # a removal changes the folder
                paths.update(file.parent for file in files)
        return max((path.stat().st_mtime for path in paths), default=0.0)


def by_part(rendered: Path) -> dict[str, Settings]:
    """Return what each part reads of what was rendered; the others have nothing to compare."""
    prometheus, alertmanager, ours = (
        str(rendered / name / "generated") for name in ("prometheus", "alertmanager", "exporter")
    )
    return {
        # Prometheus watches the files of its targets itself.
        "prometheus": Settings(prometheus, ("prometheus.yml", "rules/*"), "prometheus_config_last_reload"),
        "receiver": Settings(prometheus, ("receiver.yml",), "prometheus_config_last_reload"),
        "alertmanager": Settings(alertmanager, ("*",), "alertmanager_config_last_reload"),
        "exporter": Settings(ours, ("runs.json",), itself=True),
        "gpu": Settings(ours, ("gpu.json",), "gpu_exporter_config_last_reload", itself=True),
        "bridge": Settings(ours, ("bridge.json",), itself=True),
    }


def rules_elsewhere(rendered: Path) -> str:
    """Return what `status` says where a central ruler evaluates the rules; empty where none does."""
    folder = rendered / "prometheus/generated"
    try:
        lines = (folder / "prometheus.yml").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    if "rule_files: []" not in lines:
        return ""
    return f"\nNo rules are evaluated here (`rules: none`): a central ruler must evaluate {folder / 'rules'}."


def remarks(part: str, state: SettingsState | None, log: str) -> Iterator[str]:
    """What `status` says about settings of a part that it does not run; ``log`` says why it refused them."""
    if state is SettingsState.CHANGED:
        yield f"\n{part} runs with outdated settings. Fix: `make up`."
    if state is SettingsState.REFUSED:
        yield f"\n{part} refused its settings; {log} says why."


class Loaded(NamedTuple):
    """What a part last loaded: whether that went well, and when it last did (Unix seconds)."""

    successful: bool
    at: float


def loaded(settings: Settings, text: str | None) -> Loaded | None:
    """What a part's metrics page reports about its last loading, ``None`` when it did not answer."""
    if text is None:
        return None
    if not settings.metric:
        return Loaded(successful=True, at=http_client.metric(text, "process_start_time_seconds") or 0.0)
    at = http_client.metric(text, f"{settings.metric}_success_timestamp_seconds")
    return Loaded(http_client.metric(text, f"{settings.metric}_successful") == 1, at or 0.0)


def state_of(settings: Settings, text: str | None) -> SettingsState:
    """Compare what a part runs, by its metrics page, with its files."""
    present = loaded(settings, text)
    if present is None:
        return SettingsState.UNKNOWN
    if not present.successful:
        return SettingsState.REFUSED
    return SettingsState.CURRENT if present.at >= settings.changed() else SettingsState.CHANGED


def wait_loaded(settings: Settings, metrics: str, *, after: float, patience: float) -> bool:
    """Wait until a part has loaded its settings after a time, up to a timeout in seconds."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        present = loaded(settings, http_client.read(metrics))
        if present and present.successful and present.at > after:
            return True
        time.sleep(0.1)
    return False


class ReloadError(Refused):
    """Raised when Alertmanager refuses its new settings; it runs on with the old ones."""


def reload(alertmanager: str, settings: Path) -> str:
    """Have the Alertmanager at this base URL read its ``settings`` again; return how that went, in words."""
    answer = http_client.order(f"{alertmanager}/-/reload")
    if answer is None:
        return f"No Alertmanager answers at {alertmanager}; it reads its settings when it starts."
    if answer:
        raise ReloadError(
            f"Alertmanager rejected the new settings and keeps the old ones. It says: {answer} "
            "Fix: correct what it names in config.yaml and generate again."
        )
    if alertmanager_runs(http_client.read(f"{alertmanager}/metrics"), settings.read_bytes()):
        return "Alertmanager loaded the new settings; Prometheus loads its own within seconds."
    return f"The Alertmanager at {alertmanager} reads other files than these: `make up` applies config.yaml."


def alertmanager_runs(page: str | None, settings: bytes) -> bool:
    """Whether Alertmanager, by its metrics page, runs these settings: it tells 6 bytes of their MD5."""
    digest = hashlib.md5(settings, usedforsecurity=False).digest()[:6]
    return http_client.metric(page or "", "alertmanager_config_hash") == float(
        int.from_bytes(digest, "little")
    )

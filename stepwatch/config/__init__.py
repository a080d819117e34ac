"""config.yaml: from strict YAML text to frozen, checked records.

The names below are loaded when they are first asked for: the table of alerts, of which `Config` consists, is
built from modules of this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwatch.config.errors import ConfigError, Refused
    from stepwatch.config.loading import load
    from stepwatch.config.models import Config
    from stepwatch.config.overrides import Variant
    from stepwatch.config.quantities import Duration, Size

__all__ = ["Config", "ConfigError", "Duration", "Refused", "Size", "Variant", "load"]

_HOMES = {
    "Config": "models",
    "ConfigError": "errors",
    "Duration": "quantities",
    "Refused": "errors",
    "Size": "quantities",
    "Variant": "overrides",
    "load": "loading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

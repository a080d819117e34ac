"""config.yaml: from strict YAML text to frozen, checked records."""

from stepwatch.config.errors import ConfigError, Refused
from stepwatch.config.loading import load
from stepwatch.config.models import Config
from stepwatch.config.overrides import Variant
from stepwatch.config.quantities import Duration, Size

__all__ = ["Config", "ConfigError", "Duration", "Refused", "Size", "Variant", "load"]

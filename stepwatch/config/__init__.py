"""config.yaml: from strict YAML text to frozen, checked records."""

from stepwatch.config.loading import load
from stepwatch.config.models import Config, Variant

__all__ = ["Config", "Variant", "load"]

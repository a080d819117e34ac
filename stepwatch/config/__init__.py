"""config.yaml: from strict YAML text to frozen, checked records."""

from stepwatch.config.alerts import Variant
from stepwatch.config.loading import load
from stepwatch.config.models import Config

__all__ = ["Config", "Variant", "load"]

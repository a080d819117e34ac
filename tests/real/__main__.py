"""Has every program ready before the tests start, so that the wait is seen for what it is."""

import sys
import unittest

from tests.real import distribution, docker, mlflow, rl_insight
from tests.real.tools import EVERYTHING

try:
    distribution.install()
except RuntimeError as problem:
    sys.exit(f"{problem}")
for get in (*EVERYTHING, docker.prepare, mlflow.environment, rl_insight.environment):
    try:
        get()
    except unittest.SkipTest as reason:
        sys.stderr.write(f"Tests that need it will be skipped: {reason}\n")
    except RuntimeError as problem:
        sys.exit(f"{problem}")

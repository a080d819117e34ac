"""Have every program ready before the tests start, so that the wait is seen for what it is.

`python -m tests.real world` gets what `make test-world` needs more, which is big.
"""

import sys
import unittest

from tests.real import distribution, docker, mlflow, rl_insight, trainers
from tests.real.tools import EVERYTHING

USUAL = (*EVERYTHING, docker.prepare, mlflow.environment, rl_insight.environment)
WORLD = (*USUAL, trainers.environment)

try:
    distribution.install()
except RuntimeError as problem:
    sys.exit(f"{problem}")
for get in WORLD if sys.argv[1:] == ["world"] else USUAL:
    try:
        get()
    except unittest.SkipTest as reason:
        sys.stderr.write(f"Tests that need it will be skipped: {reason}\n")
    except RuntimeError as problem:
        sys.exit(f"{problem}")

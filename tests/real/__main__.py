"""Have every program ready before the tests start, so that the wait is seen for what it is.

`make test` needs Prometheus and Alertmanager. `python -m tests.real programs` gets what `make test-world`
needs more, and `python -m tests.real world` real trainers, too, which are big.
"""

import sys
import unittest

from tests.real import distribution, docker, mlflow, rl_insight, trainers
from tests.real.tools import EVERYTHING

PROGRAMS = (*EVERYTHING, docker.prepare, mlflow.environment, rl_insight.environment)
WANTED = {"programs": PROGRAMS, "world": (*PROGRAMS, trainers.environment)}

wanted = WANTED.get(sys.argv[1]) if sys.argv[1:] else None
try:
    if wanted:
        distribution.install()
except RuntimeError as problem:
    sys.exit(f"{problem}")
for get in wanted or EVERYTHING:
    try:
        get()
    except unittest.SkipTest as reason:
        sys.stderr.write(f"Tests that need it will be skipped: {reason}\n")
    except RuntimeError as problem:
        sys.exit(f"{problem}")

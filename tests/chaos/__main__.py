"""Run one schedule: ``python -m tests.chaos SEED``; exits with 1 if a promise is broken.

It takes root, and happens in namespaces of its own: no mount, port, rule or process of it is seen outside,
and nothing stays however it ends.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from stepwatch.system.environment import CHECKOUT
from tests.chaos.native import Native
from tests.chaos.schedule import filesystem
from tests.chaos.trial import Trial

_INSIDE = "--inside"
# A shell is the first process in there, since someone must wait for the children of those that are killed.
_APART = ["setpriv", "--pdeathsig=KILL"]  # else a test that is killed would leave all that it started
_APART += ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
_SHELL = ["sh", "-c", 'ip link set lo up; "$@"; exit $?', "sh"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument(_INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return _try(options.seed)
    command = [sys.executable, "-m", "tests.chaos", str(options.seed), _INSIDE]
    return subprocess.run([*_APART, *_SHELL, *command], cwd=CHECKOUT, check=False).returncode


def _try(seed: int) -> int:
    with tempfile.TemporaryDirectory(prefix="stepwatch-chaos-") as folder:
        print(f"State on {filesystem(seed)}, ", end="")
        with Native(Path(folder), filesystem(seed)) as stack:
            trial = Trial(stack, seed)
            try:
                trial.run()
            finally:
                print(trial.verdict())
                print(f"\nTo see it again: python -m tests.chaos {seed}")
    return 1 if trial.broken else 0


if __name__ == "__main__":
    sys.exit(main())

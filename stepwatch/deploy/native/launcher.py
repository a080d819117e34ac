"""``launcher.py PROGRAM ARGUMENTS...``: runs a part that the kernel kills as soon as supervisord is dead."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> None:
    """Replace this process, a child of supervisord, by the part."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # execve keeps it; children do not inherit it
    # supervisord leads the session of its parts. Another parent adopted this process: supervisord died before
    # the call, whose signal would never come.
    if os.getppid() != os.getsid(0):
        sys.exit("supervisord is dead.")
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as problem:
        sys.exit(f"{command[0]}: {problem.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])

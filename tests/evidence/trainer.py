"""A replacement for a trainer whose ranks wait for each other: three steps, then it hangs in native code.

As one does in a collective: in a call that never returns and holds the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import json
import os

SECRET = "hunter2-is-no-password"


def waits_for_the_other_ranks() -> None:
    read, _ = os.pipe()
    ctypes.PyDLL(None).read(read, ctypes.create_string_buffer(1), 1)


def train() -> None:
    for step in range(1, 4):
        print(
            json.dumps({"step": step, "reward": step / 10, "kl": 0.01, "wandb_api_key": SECRET}), flush=True
        )
    print(f"connecting to https://user:{SECRET}@host/, it hangs", flush=True)
    waits_for_the_other_ranks()


if __name__ == "__main__":
    train()

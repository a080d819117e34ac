"""``python -m tests.parity [NAME ...]``: freeze what the product does now; `git diff` shows what changed."""

from __future__ import annotations

import sys
import time

from tests import public_logs
from tests.parity.surfaces import PUBLIC, SURFACES, golden, shown

if __name__ == "__main__":
    chosen = sys.argv[1:] or [name for name in SURFACES if name not in PUBLIC or public_logs.folders()]
    for name in chosen:
        begun = time.monotonic()
        golden(name).parent.mkdir(exist_ok=True)
        golden(name).write_text(shown(name), encoding="utf-8")
        print(f"{name}: {golden(name).stat().st_size} bytes, {time.monotonic() - begun:.1f} s", flush=True)

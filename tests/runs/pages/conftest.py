from __future__ import annotations

from tests.runs.served import _serve  # noqa: F401  (a fixture)

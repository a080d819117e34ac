from __future__ import annotations

from tests.launch.conftest import _heard  # noqa: F401  (for these tests, too)

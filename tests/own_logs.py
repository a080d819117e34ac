"""Logs that real trainers wrote for this project, small and committed: tests/logs/README.md says how."""

from __future__ import annotations

from pathlib import Path

LOGS = Path(__file__).parent / "logs"
VERL = LOGS / "verl"
TRL = LOGS / "trl"

SICK = VERL / "sick.log"
"""Reward and length collapse and the KL explodes within the five steps after step 33 of 60."""
HEALTHY = VERL / "healthy.log"
"""PPO with a critic; says that it is done after 150 steps."""
QUIET = VERL / "healthy2.log"
"""GRPO; ends without a word after 120 steps."""
RESUMED = VERL / "resumed.log"
"""Killed after step 80 of 160 and resumed from step 60, through to the end; it says how many there are."""
TRUNCATED = VERL / "truncated.log"
"""Responses grow to the limit from step 30 on."""

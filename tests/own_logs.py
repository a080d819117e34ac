"""Logs that real trainers wrote for this project, small and committed: tests/logs/README.md says how."""

from __future__ import annotations

from pathlib import Path

LOGS = Path(__file__).parent / "logs"
VERL = LOGS / "verl"
TRL = LOGS / "trl"

SICK = VERL / "sick.log"
"""GRPO; reward and length collapse and the KL explodes in steps 34 to 38 of 60, then it is killed."""
HEALTHY = VERL / "healthy.log"
"""PPO with a critic; says that it is done after 100 steps."""
QUIET = VERL / "healthy2.log"
"""GRPO; killed after step 80 of 200."""
RESUMED = VERL / "resumed.log"
"""Killed after step 40 of 80 and resumed from step 30, through to the end."""
TRUNCATED = VERL / "truncated.log"
"""Responses grow into the limit from step 30 of 60 on."""
CONSOLES = tuple(log for log in sorted(VERL.glob("*.log")) if log.name != "tensorboard.log")
"""Of verl with its `console` logger."""
EVENT_FILES = sorted(LOGS.rglob("events.out.tfevents.*"))
"""Of TRL's trainer and of verl's own writer."""

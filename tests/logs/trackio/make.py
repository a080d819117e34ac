"""Write ``grpo.db`` with Trackio's own code: ``pip install trackio``, then run this file in a new folder.

The database is compressed with ``gzip -9n``. Two runs log as home-made loops do, the third as transformers'
callback does: without a step, which stands in ``train/global_step``.
"""

import math
import os

os.environ["TRACKIO_DIR"] = "."

import trackio

OFF = {"auto_log_gpu": False, "auto_log_cpu": False, "embed": False}

for name, gain in (("good", 0.05), ("flat", 0.0)):
    trackio.init(project="grpo", name=name, config={"lr": 1e-6, "max_steps": 12}, **OFF)
    for step in range(1, 13):
        kl = math.nan if step == 5 else 0.001 * step
        trackio.log({"reward": 0.25 + gain * step, "kl": kl, "entropy": 0.5, "note": "text"}, step=step)
    trackio.finish()

trackio.init(project="grpo", name="callback", config={"max_steps": -1}, **OFF)
for step in range(10, 70, 10):
    trackio.log({"train/reward": 0.01 * step, "train/kl": 0.002, "train/global_step": step})
    if step % 20 == 0:
        trackio.log({"eval/reward": 0.3, "train/global_step": step})
trackio.finish()

"""Has the demo in containers start over, as if it had never run."""

from __future__ import annotations

import time

from stepwatch.config import Config
from stepwatch.config.deployment import CONTAINER_PORTS
from stepwatch.deploy.compose.engine import Engine, addresses
from stepwatch.services import demo
from stepwatch.system.terminal import Say

SIMULATIONS = ("demo", "demo-gpu")


def demo_reset(project: Engine, config: Config, say: Say) -> int:
    """Start the simulated runs and GPUs over, and end the alerts that they raised.

    Prometheus starts again as well, keeping its history: it would hold on to those alerts.

    Returns:
        0 when the demo runs anew, 1 when it does not run.
    """
    running = {service.name for service in project.services() if service.state == "running"}
    if not running.issuperset(SIMULATIONS):
        say("The demo is not running. `make up DEMO=1` starts it.")
        return 1
    begun = time.time()
    project.tell("restart", *SIMULATIONS)
    say("The simulated runs and GPUs start over.")
    demo.wait_started(f"http://{config.address('prometheus')}", begun)
    count = _end_alerts(project, config)
    say(f"{count} alerts of the demo are over. They come again within three minutes.")
    return 0


def remove_demo(project: Engine) -> bool:
    """Remove the demo's containers and logs; returns whether there were any."""
    services = project.services()
    names = [service.name for service in services if service.name.startswith("demo")]
    if names:
        project.tell("rm", "--stop", "--force", *names)
        # One that was killed has left its logs; and the exporter would show runs whose logs go as silent.
        project.tell("run", "--rm", "--no-deps", "-T", "demo", "rm", "-rf", "/demo/demo")
        project.tell("restart", "exporter")
        # A Prometheus that is replaced before it saw them go would go on with them for five minutes.
        if prometheus := addresses(services).get("prometheus"):
            demo.wait_gone(f"http://{prometheus}")
    return bool(names)


def end_demo(project: Engine, config: Config, say: Say) -> None:
    """End the alerts that the demo raised, once it is removed."""
    say(f"The demo is gone; {_end_alerts(project, config)} alerts of it are over.")


def _end_alerts(project: Engine, config: Config) -> int:
    project.tell("restart", "prometheus")
    demo.wait_ready(f"http://{config.address('prometheus')}")
    return demo.end_alerts(f"http://{config.address('alertmanager')}", f"demo-gpu:{CONTAINER_PORTS['gpu']}")

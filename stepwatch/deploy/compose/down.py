"""Takes the containers down."""

from __future__ import annotations

from stepwatch.deploy.compose.demo import SIMULATIONS
from stepwatch.deploy.compose.engine import Engine, addresses
from stepwatch.services import demo
from stepwatch.system.terminal import Say

_UNSCRAPED_SECONDS = 50
"""The name of a stopped container is unknown to DNS: after its refresh, 15 s at most, Prometheus waits for
two intervals of the GPUs' scrape before it ends the series of a target that is gone."""


def down(project: Engine, say: Say) -> int:
    """Remove every container of the stack; volumes, with data, silences and the password, stay.

    Returns:
        0 when nothing of it runs any more, else what Compose ended with.
    """
    services = project.services()
    if not services:
        say("Stepwatch is not running.")
        return 0
    running = {service.name for service in services if service.state == "running"}
    if running.issuperset(SIMULATIONS) and (prometheus := addresses(services).get("prometheus")):
        project.tell("stop", "exporter", "demo-gpu")
        say(f"Waiting until Prometheus has seen the end of the demo: at most {_UNSCRAPED_SECONDS} s.")
        demo.wait_unscraped(f"http://{prometheus}", _UNSCRAPED_SECONDS)
    if code := project.show("down", "--remove-orphans"):
        return code
    say("Stepwatch is down. Its data stays in Docker's volumes (`docker volume ls`).")
    return 0

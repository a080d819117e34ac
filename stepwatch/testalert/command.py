"""The command: which receiver, whether it can be tested now, and how the test went."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Protocol

from stepwatch.config import Config, load
from stepwatch.config.deployment import Deployment
from stepwatch.config.receivers import Receiver
from stepwatch.render.generator import rendered
from stepwatch.render.layout import RESOURCES
from stepwatch.schema.errors import Refused
from stepwatch.system.terminal import Say
from stepwatch.testalert.alertmanager import Alertmanager
from stepwatch.testalert.journal import Journal
from stepwatch.testalert.probe import Probe
from stepwatch.testalert.watch import Watch


class Site(Protocol):
    """A running stack, of containers or of plain processes."""

    def deployment(self, config: Config) -> Deployment:
        """What its files are rendered for."""

    def journal(self, part: str) -> Journal:
        """What a part logs from now on."""

    def log(self, part: str) -> str:
        """Where people read that."""


DELIVERED, NOT_DELIVERED = 0, 1

_SETTINGS = PurePosixPath("alertmanager/generated/alertmanager.yml")


def send_test(config: Path, name: str, site: Site, say: Say, *, patience: float = 60) -> int:
    """Send one marked message to a receiver through the running Alertmanager; tell what came back.

    Args:
        config: The configuration file.
        name: The receiver.
        site: How the stack runs.
        say: Gets each line.
        patience: Seconds until it is given up.

    Returns:
        0 when the receiver took it, 1 when not.

    Raises:
        Refused: There is no such receiver, or Alertmanager does not run what config.yaml says.
    """
    settings = load(config)
    receiver = _receiver(settings, name, config)
    alertmanager = Alertmanager(f"http://{settings.address('alertmanager')}")
    _require_current(alertmanager, config, site)
    say(f"Sending a test message to {name} ...")
    journal, where = site.journal("alertmanager"), site.log("alertmanager")
    watch = Watch(receiver, Probe(name), alertmanager, journal, where, patience)
    verdict = watch.run(say)
    say(verdict.words)
    return DELIVERED if verdict.delivered else NOT_DELIVERED


def _receiver(config: Config, name: str, file: Path) -> Receiver:
    known = {receiver.name: receiver for receiver in config.receivers}
    if name in known:
        return known[name]
    if not known:
        raise Refused(f"{file}: receivers: there are none. Fix: add one there, then `make up`.")
    raise Refused(
        f"{name} is no receiver of {file}. Expected: {' or '.join(known)}. "
        f"Fix: name one of these, or add it there and `make up`."
    )


def _require_current(alertmanager: Alertmanager, config: Path, site: Site) -> None:
    if not alertmanager.runs(rendered(config, RESOURCES, site.deployment)[_SETTINGS]):
        raise Refused(
            f"The Alertmanager at {alertmanager.url} runs other settings than {config} says, and the test "
            "would be of those. Fix: `make up` (for another file `make up CONFIG=file`), then test again."
        )

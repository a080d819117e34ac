"""Where the parts run, and so what one must write to reach another: on this machine, or in containers."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from stepwatch.config import Config
from stepwatch.config.cluster import CREDENTIALS
from stepwatch.schema.errors import Refused

# A mounted file keeps its owner and its mode: a secret that a container cannot read shows only when the first
# message is lost, so its mode is checked here.
CONTAINER_USER = CONTAINER_GROUP = 65534
"""What the official images run as. compose.yaml gives them the group of the mounted folder besides."""

GROUP_VARIABLE = "STEPWATCH_SECRETS_GROUP"
"""The variable of compose.yaml for that group; `make up` sets it to the folder's own."""


def require(path: Path, mounted: Path) -> None:
    """Check that a container can read a file below a mounted folder. Raises Refused."""
    target, folder = path.resolve(), mounted.resolve()
    if not target.is_relative_to(folder):
        raise Refused(
            f"{path}: leads to {target}, which no container sees. "
            f"Expected: a file below {mounted}. Fix: copy it there."
        )
    group = int(os.environ.get(GROUP_VARIABLE) or mounted.stat().st_gid)
    for step in (*(above for above in reversed(target.parents) if above.is_relative_to(folder)), target):
        bit, verb, mode = (stat.S_IXUSR, "search", "750") if step.is_dir() else (stat.S_IRUSR, "read", "640")
        status = step.stat()
        # Each user is judged by one of the three sets of bits only.
        if status.st_uid != CONTAINER_USER:
            bit >>= 3 if status.st_gid in (group, CONTAINER_GROUP) else 6
        if not status.st_mode & bit:
            owned = "" if status.st_gid == group else f"chgrp {group} {step} && "
            raise Refused(
                f"{step}: mode {stat.S_IMODE(status.st_mode):o} does not let the containers {verb} it. "
                f"Expected: that group {group} may. Fix: {owned}chmod {mode} {step}"
            )


CONTAINER_PORTS = {
    "exporter": 9410,
    "gpu": 9411,
    "bridge": 9414,
    "receiver": 9415,
    "node": 9100,
    "prometheus": 9090,
    "alertmanager": 9093,
    "grafana": 3000,
}
"""What each part listens on in its container, whatever port of the host leads there."""

HOST = "host.docker.internal"
HOST_FILES = "/host"
"""Below this path the run exporter sees the file system of this machine."""

HOST_PROC = "/host/proc"
"""Where compose.processes.yaml has the GPU exporter see the /proc of this machine."""

SECRETS = "/etc/stepwatch/secrets"
"""Where containers see the folder of secrets."""

TARGETS = "/etc/stepwatch/targets"
"""Where compose.yaml shows Prometheus the folder of target files."""

DISCOVERED = "discovered"
"""The folder in there of what `generate.py --discover` writes, where no `*` of another job finds it."""
_LOOPBACK = re.compile(r"^(127\.\d+\.\d+\.\d+|localhost|\[::1\])(?=[:/]|$)")


def above_ray(config: Config) -> Path:
    """The folder above Ray's, which is the one to mount: Ray's own comes and goes."""
    usual: Path = Config.model_fields["discovery"].default.ray
    return (config.discovery.ray or usual).parent


_USUAL_ABOVE = above_ray(Config())


def local_targets(deployment: Deployment) -> str:
    """Return what `instance;address` of a target on this machine matches, if it has no instance: its port."""
    names = (HOST, *CONTAINER_PORTS) if deployment.containers else ()
    loopback = r"127\.\d+\.\d+\.\d+|localhost|\[::1\]"
    return f";(?:{'|'.join((loopback, *map(re.escape, names)))}):(\\d+)"


@dataclass(frozen=True)
class OnThisMachine:
    """Plain processes on this machine."""

    config: Config
    parts: frozenset[str] = frozenset({"exporter", "gpu", "prometheus", "alertmanager", "grafana"})
    containers: bool = False
    discovered: str | None = None
    password_file: str = ""
    agents_folder: str = ""

    def runs(self, part: str) -> bool:
        """Whether this part (a key below ``ports``) is there."""
        return part in self.parts

    def address(self, part: str) -> str:
        """Return host:port at which the other parts reach it."""
        return self.config.address(part)

    def port(self, part: str) -> int:
        """Return the port of that address."""
        port: int = getattr(self.config.ports, part)
        return port

    def target(self, address: str) -> str:
        """Return a host:port of config.yaml as Prometheus reaches it."""
        return address

    def url(self, url: str) -> str:
        """Return a URL of config.yaml as Alertmanager reaches it."""
        return url

    def file(self, path: Path) -> str:
        """Return a file that config.yaml names, as the part that reads it sees it. Raises Refused."""
        return str(path)

    def left_file(self, path: Path) -> str:
        """Return a file that trainers write, as the run exporter sees it. Raises Refused."""
        return str(path)

    @property
    def receiver(self) -> str:
        """host:port at which Prometheus reaches a hub's receiver."""
        return self.config.receiver_url.partition("://")[2]


@dataclass(frozen=True)
class InContainers:
    """The services of compose.yaml; ``folders`` are those that containers see, and where they see them."""

    folders: dict[Path, str] = field(default_factory=dict)
    above: Path = _USUAL_ABOVE
    containers: bool = True
    discovered: str | None = f"{TARGETS}/{DISCOVERED}"
    password_file: str = "/run/stepwatch/internal-password"  # noqa: S105  (a path)
    agents_folder: str = f"{SECRETS}/{CREDENTIALS}"
    receiver: str = f"receiver:{CONTAINER_PORTS['receiver']}"

    def runs(self, part: str) -> bool:
        """Whether this part (a key below ``ports``) is there."""
        return part in CONTAINER_PORTS

    def address(self, part: str) -> str:
        """Return host:port at which the other parts reach it."""
        return f"{part}:{CONTAINER_PORTS[part]}"

    def port(self, part: str) -> int:
        """Return the port of that address."""
        return CONTAINER_PORTS[part]

    def target(self, address: str) -> str:
        """Return a host:port of config.yaml as Prometheus reaches it."""
        return _LOOPBACK.sub(HOST, address, count=1)

    def url(self, url: str) -> str:
        """Return a URL of config.yaml as Alertmanager reaches it."""
        scheme, _, rest = url.partition("://")
        return f"{scheme}://{_LOOPBACK.sub(HOST, rest, count=1)}"

    def left_file(self, path: Path) -> str:
        """Return a file that trainers write, as the run exporter sees it. Raises Refused."""
        return f"{HOST_FILES}{path}" if path.is_relative_to(self.above) else self.file(path)

    def file(self, path: Path) -> str:
        """Return a file that config.yaml names, as the part that reads it sees it. Raises Refused."""
        for folder, seen in self.folders.items():
            if path.is_relative_to(folder):
                below = path.relative_to(folder)
                if path.exists():  # else a pattern, or a list of targets that is still to come
                    require(path, folder)
                    below = path.resolve().relative_to(folder.resolve())
                return f"{seen}/{below.as_posix()}"
        known = " or ".join(map(str, self.folders))
        raise Refused(
            f"{path}: no container sees this file. Expected: a file below {known}. Fix: move it there."
        )


Deployment = OnThisMachine | InContainers
"""How the parts reach each other, as templates ask for it."""


def mounted(checkout: Path) -> tuple[Path, Path]:
    """Return the folders of this machine that containers see: secrets, and files of scrape targets."""
    secrets = os.environ.get("STEPWATCH_SECRETS") or checkout / "secrets"
    targets = os.environ.get("STEPWATCH_TARGETS") or checkout / "targets"
    return Path(secrets).absolute(), Path(targets).absolute()

"""How servers of runs are found that come and go on random ports: the `discovery` section."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from exporter.runs.rollouts.address import USUAL
from stepwatch.schema.errors import Fault
from stepwatch.schema.path_types import FolderOrGlob
from stepwatch.schema.quantities import Duration
from stepwatch.schema.scalars import PositiveSpan
from stepwatch.schema.secret import SecretFile
from stepwatch.schema.section import Checked, Section, default


def _network(value: Any) -> str:
    try:
        return str(ip_network(value if isinstance(value, str) else ""))
    except ValueError as error:
        raise Fault(
            "is no network",
            expected="an IP address, or one with the number of bits that count, such as 10.0.0.0/8",
            fix="write it so; bits beyond that number are 0",
        ) from error


Network = Annotated[str, Checked(_network)]


class Discovery(Section):
    """Where word of servers is found, and which of them Prometheus may read."""

    allow: tuple[Network, ...] = default(
        USUAL,
        "Networks in which Prometheus may scrape discovered servers; addresses elsewhere are "
        "refused and counted. Loopback and private networks; add 100.64.0.0/10 if your pods "
        "use it. [] discovers nothing.",
    )
    ray: FolderOrGlob | None = Field(
        default=Path("/tmp/ray"),  # noqa: S108  Ray's own default
        description="Ray's folder (ray start --temp-dir), with its own list of targets and the "
        "prometheus.yml that verl writes. null: no Ray on this machine.",
    )
    files: tuple[FolderOrGlob, ...] = default(
        (),
        "More files that verl writes (actor_rollout_ref.rollout.prometheus.file), or globs. "
        "Only read: never name a file that a Prometheus uses, because verl overwrites it.",
    )
    forget_after: PositiveSpan = default(
        Duration.parse("10m"),
        "A server that has accepted no connection for this long is removed. Longer than "
        "alerts.EngineGone.for, or EngineGone could not fire. It returns when it answers "
        "again, and is removed at once when its run has ended.",
    )
    token_file: SecretFile | None = default(
        None,
        "A file with a token that clients of rl-insight must send to register servers: "
        "RL_INSIGHT_SERVER_URL=http://any:TOKEN@host:9410. null: everyone who reaches the "
        "port may register.",
    )

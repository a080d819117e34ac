"""``python -m stepwatch agent``: which nodes may write to this hub."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from exporter.door.agent_access import NODE_NAME, new_token
from exporter.installation import adapt
from stepwatch.config import load
from stepwatch.schema.errors import Refused
from stepwatch.services import hub


def agent(config: Path, folder: Path, node: str | None, *, renew: bool, revoke: bool) -> int:
    """Make, renew or revoke the credential of a node, or list the nodes.

    Only the token goes to standard output.

    Args:
        config: The hub's configuration file.
        folder: That of the credentials.
        node: The node's name; ``None`` to list all.
        renew: Replace a credential that is there; the old token is invalid at once.
        revoke: Remove it.

    Raises:
        Refused: The name is invalid, the credential exists or is missing, or it cannot be written.
    """
    if node is None:
        if renew or revoke:
            raise Refused("NODE: missing. Expected the name of a node. Fix: `make agent NODE=node-7 ...`.")
        return _list(config, folder)
    if not NODE_NAME.fullmatch(node):
        raise Refused(
            f"NODE: {node[:100]!r} is not the name of a node. Expected up to 63 letters, digits and any of "
            ". _ -, as `node` in config.yaml of the agent. Fix: write node-7, say."
        )
    known = load(config)
    if not known.is_hub:
        raise Refused(
            f"role: {known.role}: only a hub receives samples from agents. Expected: role: hub. Fix: set it "
            "in "
            f"{config}, `make up`, and try again."
        )
    file = folder / node
    if revoke:
        return _revoke(file)
    if file.exists() and not renew:
        raise Refused(
            f"{file}: this node already has a token. Expected a new node. Fix: `make agent NODE={node} "
            "RENEW=1` replaces it; the old token is invalid at once."
        )
    token, digest = new_token()
    try:
        _write(file, f"{digest}\n")
    except OSError as problem:
        raise _not_writable(file, problem) from None
    sys.stdout.write(f"{token}\n")
    sys.stdout.flush()
    _write_error(
        f"The line on standard output is the token of {node}; it is not shown again. Store it on the agent "
        "in a file that only its user can read, and set hub.token_file to that file."
    )
    return 0


def _revoke(file: Path) -> int:
    try:
        file.unlink()
    except FileNotFoundError:
        raise Refused(
            f"{file}: no such node. Expected one that `make agent` lists. Fix: check the name."
        ) from None
    except OSError as problem:
        raise _not_writable(file, problem) from None
    _write_error(f"Revoked: the hub refuses the token of {file.name} from now on.")
    return 0


def _list(config: Path, folder: Path) -> int:
    lines = hub.nodes(folder, hub.page(load(config)))
    for line in lines or [f"No node may write: {folder} has no tokens. `make agent NODE=node-7` makes one."]:
        _write_error(line)
    return 0


def _write(file: Path, text: str) -> None:
    """Replace the file in one step, readable by the group of the folder of secrets, as containers need it."""
    parent = file.parent.parent
    parent.mkdir(mode=0o750, exist_ok=True)
    group = parent.stat().st_gid
    if not file.parent.exists():
        file.parent.mkdir()
        _give(file.parent, group)
        file.parent.chmod(0o750)
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        _give(fresh, group)
        fresh.chmod(0o640)
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)


def _give(path: Path, group: int) -> None:
    with suppress(OSError):  # not a group of this user: a folder of secrets that containers do not read
        os.chown(path, -1, group)


def _not_writable(file: Path, problem: OSError) -> Refused:
    return Refused(
        f"{file}: {problem.strerror}. Expected a folder that you may write to. Fix: work as its owner."
    )


def _write_error(line: str) -> None:
    sys.stderr.write(adapt(f"{line}\n"))

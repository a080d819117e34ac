"""Who may write to a hub: the web.config.file of its receiver, one user for each node.

Prometheus reads that file at each request, and the certificate at each connection: changes need no restart.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from exporter.credentials import HEADERS, INTERNAL, PASSWORD, WEB, hashed
from stepwatch.config import Config
from stepwatch.schema.errors import Refused


def nodes(folder: Path) -> dict[str, str]:
    """Return the nodes that may write, each with the hash of its password. Raises ``Refused``."""
    file = folder / WEB
    try:
        found: dict[str, str] = json.loads(file.read_text(encoding="ascii"))["basic_auth_users"]
        return {name: found[name] for name in sorted(found) if name != INTERNAL}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError) as problem:
        raise Refused(
            f"{file}: cannot be read ({type(problem).__name__}). Expected: what `make agent` wrote. Fix: "
            "delete it, `make up`, and give each node a new password with `make agent NODE=name`."
        ) from None


def save(config: Config, folder: Path, users: Mapping[str, str]) -> None:
    """Write who may write, and the certificate, if that is not what the file says. Raises ``Refused``."""
    try:
        folder.parent.mkdir(mode=0o750, exist_ok=True)
        if not folder.exists():
            folder.mkdir()
            _give(folder, 0o750)
        password = folder / PASSWORD
        known = json.loads((folder / WEB).read_text(encoding="ascii")) if (folder / WEB).exists() else {}
        own = known.get("basic_auth_users", {}).get(INTERNAL)
        if not own or not password.exists():
            # Prometheus takes everyone's requests where it knows no user: the hub's own is always there.
            made = secrets.token_urlsafe(32)
            _write(password, made)
            own = hashed(made)
        files = {"cert_file": config.agents.cert_file, "key_file": config.agents.key_file}
        tls = {key: os.path.relpath(file.resolve(), folder.resolve()) for key, file in files.items() if file}
        web = {
            "basic_auth_users": {INTERNAL: own, **users},
            "http_server_config": {"headers": HEADERS},
            **({"tls_server_config": tls} if tls else {}),
        }
        if web != known:
            _write(folder / WEB, json.dumps(web))
    except (OSError, ValueError) as problem:
        raise Refused(
            f"{folder}: {getattr(problem, 'strerror', problem)}. Expected a folder that you may write to. "
            "Fix: work as its owner."
        ) from None


def own_password(folder: Path) -> str | None:
    """Return the password of the hub's own user, ``None`` before the first `make up`."""
    file = folder / PASSWORD
    return file.read_text(encoding="ascii") if file.exists() else None


def _write(file: Path, text: str) -> None:
    """Replace a file in one step, readable by the group of the folder of secrets, as containers need it."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        _give(fresh, 0o640)
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)


def _give(path: Path, mode: int) -> None:
    with suppress(OSError):  # not a group of this user: a folder of secrets that containers do not read
        os.chown(path, -1, (path.parent.parent if path.is_file() else path.parent).stat().st_gid)
    path.chmod(mode)

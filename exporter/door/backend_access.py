"""The credentials of Prometheus and Alertmanager behind the door: a generated password.

A folder with three files: ``password``; ``web.yml``, by which both programs know its hash
(--web.config.file); and ``client.yml``, by which promtool and amtool read it (--http.config.file).

``python -m exporter.door.backend_access FILE FOLDER`` makes the folder for the containers, and FILE with
Grafana's password, where there are none.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
from pathlib import Path

import bcrypt

USER = "stepwatch"
PASSWORD, WEB, CLIENT = "password", "web.yml", "client.yml"

_COST = 4
"""The minimum: slow hashes are for guessable passwords, and this one has 256 bits."""


def main(arguments: list[str]) -> int:
    """Make the files. Returns the exit code."""
    file, folder = map(Path, arguments)
    # Each container that mounts a volume reads it as another user; they are mounted nowhere else.
    if not file.exists():
        _write(file, secrets.token_urlsafe(18), 0o644)
    make(folder, mode=0o644)
    print(  # noqa: T201  (what `docker compose logs init` shows)
        "Grafana: user admin; its password is shown by "
        "`docker compose exec grafana cat /run/stepwatch/grafana-password`."
    )
    return 0


def make(folder: Path, *, mode: int) -> None:
    """Make the folder and its files, unless all are there; they never change after that.

    ``mode`` is that of the files: 0o600 where the folder is seen by others, such as on a machine of many
    users.

    Raises:
        OSError: They cannot be written.
    """
    if all((folder / name).exists() for name in (WEB, CLIENT, PASSWORD)):
        return
    folder.mkdir(parents=True, exist_ok=True)
    password = secrets.token_urlsafe(32)
    digest = bcrypt.hashpw(password.encode(), bcrypt.gensalt(_COST)).decode()
    login = {"username": USER, "password_file": str(folder / PASSWORD)}
    _write(folder / WEB, json.dumps({"basic_auth_users": {USER: digest}}), mode)
    _write(folder / CLIENT, json.dumps({"basic_auth": login}), mode)
    _write(folder / PASSWORD, password, mode)


def authorization(password: Path) -> str:
    """Return the value of the header ``Authorization``.

    Raises:
        OSError: The file cannot be read.
    """
    secret = f"{USER}:{password.read_text(encoding='ascii').strip()}"
    return f"Basic {base64.b64encode(secret.encode()).decode()}"


def _write(file: Path, text: str, mode: int) -> None:
    """Replace the file in one step; it is never open to more than ``mode``."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

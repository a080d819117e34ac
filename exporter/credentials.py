"""The two users of Prometheus and Alertmanager: ``stepwatch`` for people, ``internal`` for our services.

The password of people is that of Grafana's admin too. A folder holds ``internal-password``; ``web.yml``, by
which both programs know the hashes of both passwords (--web.config.file); and ``client.yml``, by which
promtool and amtool sign in (--http.config.file).

``python -m exporter.credentials FILE FOLDER`` makes the file with people's password and the folder for the
containers, where they are missing.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

PEOPLE, INTERNAL = "stepwatch", "internal"
PASSWORD, WEB, CLIENT = "internal-password", "web.yml", "client.yml"

HEADERS = {"X-Frame-Options": "deny", "Content-Security-Policy": "frame-ancestors 'none'"}
"""In a frame of another site's page, a user who is signed in could be led to press a button."""

_COST = 4
"""The minimum: slow hashes are for guessable passwords, and these have 144 and 256 random bits."""


def main(arguments: list[str]) -> int:
    """Make the files. Returns the exit code."""
    people, folder = map(Path, arguments)
    # Each container that mounts a volume reads it as another user; they are mounted nowhere else.
    make(people, folder, mode=0o644)
    print(  # noqa: T201  (what `docker compose logs init` shows)
        f"Prometheus and Alertmanager: user {PEOPLE}; Grafana: user admin. The password of both is shown by "
        f"`docker compose exec grafana cat {people}`."
    )
    return 0


def make(people: Path, folder: Path, *, mode: int) -> None:
    """Make what is missing: the file with people's password, and the files of the folder.

    ``mode`` is that of the files: 0o600 where others see the folders, such as on a machine of many users.

    Raises:
        OSError: They cannot be written.
    """
    import bcrypt  # noqa: PLC0415  (the services that only sign in need no hashes)

    folder.mkdir(parents=True, exist_ok=True)
    passwords = {
        PEOPLE: _password(people, 18, mode).encode(),
        INTERNAL: _password(folder / PASSWORD, 32, mode).encode(),
    }
    try:
        found = json.loads((folder / WEB).read_text(encoding="ascii"))
        users = found["basic_auth_users"]
        known = found["http_server_config"]["headers"] == HEADERS and all(
            bcrypt.checkpw(password, users[user].encode()) for user, password in passwords.items()
        )
    except (OSError, ValueError, LookupError, TypeError):  # missing or damaged
        known = False
    if not known:
        users = {user: hashed(password.decode()) for user, password in passwords.items()}
        web = {"basic_auth_users": users, "http_server_config": {"headers": HEADERS}}
        _write(folder / WEB, json.dumps(web), mode)
    login = {"username": INTERNAL, "password_file": str(folder / PASSWORD)}
    _write(folder / CLIENT, json.dumps({"basic_auth": login}), mode)


def hashed(password: str) -> str:
    """Return the bcrypt hash of a random password, as a web.config.file has it."""
    import bcrypt  # noqa: PLC0415  (the services that only sign in need no hashes)

    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(_COST)).decode()


def authorization(password: str, user: str = INTERNAL) -> str:
    """Return the value of the header ``Authorization``."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def login(file: Path | str | None) -> Mapping[str, str]:
    """Return the headers that sign in with the password in a file, read anew; none without a file.

    Raises:
        OSError: The file cannot be read.
    """
    return {"Authorization": authorization(Path(file).read_text(encoding="ascii").strip())} if file else {}


def _password(file: Path, size: int, mode: int) -> str:
    """Return the password in a file, a new one of so many random bytes if it holds none."""
    password = file.read_text(encoding="utf-8").strip() if file.exists() else ""
    if not password:
        password = secrets.token_urlsafe(size)
        _write(file, password, mode)
    return password


def _write(file: Path, text: str, mode: int) -> None:
    """Replace the file in one step; it is never open to more than ``mode``."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

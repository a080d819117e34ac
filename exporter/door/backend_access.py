"""What opens Prometheus and Alertmanager behind the door: a password that no person types.

A folder with three files: ``password``; ``web.yml``, by which both programs know its hash
(--web.config.file); and ``client.yml``, by which promtool and amtool read it (--http.config.file).
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from pathlib import Path

import bcrypt

USER = "stepwatch"
PASSWORD, WEB, CLIENT = "password", "web.yml", "client.yml"

_COST = 4
"""The least: a slow hash is for passwords that can be guessed, and this one has 256 bits."""


def make(folder: Path, *, mode: int) -> None:
    """Make the folder and its files, unless all are there; they never change after that.

    ``mode`` is that of the files: 0o600 where the folder is seen by others, such as on a machine of many
    users.

    Raises:
        OSError: they cannot be written.
    """
    names = (WEB, CLIENT, PASSWORD)
    if all((folder / name).exists() for name in names):
        return
    folder.mkdir(parents=True, exist_ok=True)
    password = secrets.token_urlsafe(32)
    digest = bcrypt.hashpw(password.encode(), bcrypt.gensalt(_COST)).decode()
    texts = {
        WEB: json.dumps({"basic_auth_users": {USER: digest}}),
        CLIENT: json.dumps({"basic_auth": {"username": USER, "password_file": str(folder / PASSWORD)}}),
        PASSWORD: password,
    }
    for name in names:
        _write(folder / name, texts[name], mode)


def authorization(password: Path) -> str:
    """Return the value of the header ``Authorization``.

    Raises:
        OSError: the file cannot be read.
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

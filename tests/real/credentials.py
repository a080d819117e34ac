"""Servers that ask for a password, and how tests sign in to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exporter import credentials
from stepwatch.system import http_client

_files: dict[str, Path] = {}


def _password(address: str) -> str | None:
    file = _files.get(address)
    return file.read_text().strip() if file and file.exists() else None


http_client.sign_in(_password)


def sign_in(folder: Path, *places: int | str) -> None:
    """From now on sign in with the internal password in a folder at host:port, or ports of this machine."""
    for place in places:
        address = place if isinstance(place, str) else f"127.0.0.1:{place}"
        _files[address] = folder / credentials.PASSWORD


def protected(folder: Path) -> str:
    """Make credentials in a folder; returns the option with which a program asks for them."""
    credentials.make(folder / "password", folder, mode=0o600)
    return f"--web.config.file={folder / credentials.WEB}"


def login(folder: Path, user: str = credentials.INTERNAL) -> dict[str, Any]:
    """The headers of a user whose password is in a folder of credentials."""
    name = credentials.PASSWORD if user == credentials.INTERNAL else "password"
    return {"Authorization": credentials.authorization((folder / name).read_text(), user)}

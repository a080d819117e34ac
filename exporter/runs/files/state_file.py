"""Small files of Stepwatch's own: written whole or not at all, and known to be damaged."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path


def write(path: Path, title: str, body: bytes) -> None:
    """Write ``body`` atomically, making its folder if need be: a crash leaves old or new. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".new")
    scratch.write_bytes(_seal(title, body) + b"\n" + body)
    scratch.replace(path)


def read(path: Path, title: str, most: int = -1) -> bytes | None:
    """What the file holds; ``None`` if damaged, or longer than ``most`` bytes. Raises OSError."""
    with path.open("rb") as file:
        seal, _, body = file.read(most).partition(b"\n")
    return body if seal == _seal(title, body) else None


def _seal(title: str, body: bytes) -> bytes:
    """The first line: what the file is, and what its content must add up to."""
    return f"{title} {sha256(body).hexdigest()}".encode()

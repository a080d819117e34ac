"""The texts in a package's sources that are keys of metrics, without running any of them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ANY = "*"
"""Stands for a part of a key that is known only while the trainer runs."""
_KEY = re.compile(r"[a-z*][a-z0-9_*@-]*(?:/[\w*@.+-]+)+")
_DOWNLOAD_SECONDS = 300


class Sources(NamedTuple):
    """A package's version, its keys of metrics by their form (``group/name``), and all its texts."""

    version: str
    logged: frozenset[str]
    texts: frozenset[str]


def download(package: str, folder: Path) -> Path:
    """Fetch the newest wheel, which pip does not run. Raises ``OSError`` with pip's reason."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--python-version", "3.12", "--dest", str(folder), package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        raise OSError(f"{package}: no answer within {_DOWNLOAD_SECONDS} s") from late
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise OSError(f"{package}: {done.stderr.strip() or 'pip downloaded no wheel'}")
    return wheels[0]


def read(wheel: Path) -> Sources:
    """Return what a wheel's modules say, those of its tests aside. Raises ``OSError`` for a damaged wheel."""
    texts: set[str] = set()
    logged: set[str] = set()
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".py") and "/test" not in name:
                    for text, is_key in _texts(archive.read(name)):
                        texts.add(text)
                        if is_key and _KEY.fullmatch(text):
                            logged.add(text)
    except zipfile.BadZipFile as damaged:
        raise OSError(f"{wheel.name}: {damaged}") from damaged
    return Sources(wheel.name.split("-")[1], frozenset(logged), frozenset(texts))


def _texts(module: bytes) -> Iterator[tuple[str, bool]]:
    """Each text of a module, and whether it is where keys are: of a dictionary, an index, or a call."""
    try:
        tree = ast.parse(module)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if (text := _text(node)) is not None:
            yield text, False
        for key in _keys(node):
            if (text := _text(key)) is not None:
                yield text, True


def _keys(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Dict(keys=keys):
            return [key for key in keys if key is not None]
        case ast.Subscript(slice=key):
            return [key]
        case ast.Call(func=ast.Attribute(attr=name), args=[key, *_]) if "metric" in name.lower():
            return [key]
    return []


def _text(node: ast.AST) -> str | None:
    """A text of the source, with ``ANY`` for what is put into it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) or ANY for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            both = _text(left), _text(right)
            return None if both == (None, None) else "".join(part or ANY for part in both)
    return None

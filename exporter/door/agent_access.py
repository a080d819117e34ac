"""By what agents and a hub know each other: the tokens of nodes, and the certificate of the write door.

A folder has a file for each node that may write, named after it, with the SHA-256 (hex) of the node's
token. The token has 256 random bits, so a fast hash is enough: it cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import ssl
import time
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger("exporter.door.agents")

NODE_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,63}")
"""A node's name, which is that of a file too: those that begin with a dot are still being written."""

_HASH = re.compile(r"[0-9a-f]{64}")
_Mark = tuple[int, int, int, int]
FileMarks = tuple[_Mark | None, ...]


def new_token() -> tuple[str, str]:
    """Return a new token, and what its file holds."""
    token = secrets.token_urlsafe(32)
    return token, hashlib.sha256(token.encode()).hexdigest()


class Credentials:
    """The credentials in a folder, read at each check; ``unusable`` are files that held none then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unusable: frozenset[str] = frozenset()
        self._known: dict[str, tuple[_Mark, str]] = {}

    def nodes(self) -> Collection[str]:
        """Look at the folder; returns the nodes that may write."""
        found: dict[str, tuple[_Mark, str]] = {}
        with suppress(OSError), os.scandir(self.folder) as entries:  # none, and none may write
            for entry in entries:
                if not NODE_NAME.fullmatch(entry.name):
                    continue
                with suppress(OSError):  # removed between the two
                    mark = _mark(entry.stat())
                    known = self._known.get(entry.name)
                    text = known[1] if known and known[0] == mark else self._read(entry.name)
                    found[entry.name] = mark, text
        self._known = found
        self.unusable = frozenset(name for name, (_, text) in found.items() if not text)
        return found.keys() - self.unusable

    def node(self, authorization: str) -> str | None:
        """Return the node whose token the header ``Authorization`` has, or ``None``."""
        kind, _, token = authorization.partition(" ")
        digest = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).hexdigest()
        owner = None
        for name in self.nodes():  # all of them, so that the time does not reveal which
            if hmac.compare_digest(self._known[name][1], digest):
                owner = name
        return owner if kind.lower() == "bearer" else None

    def _read(self, name: str) -> str:
        try:
            with (self.folder / name).open("rb") as file:
                text = file.read(256).decode("ascii", "replace").strip()
        except OSError:
            return ""
        return text if _HASH.fullmatch(text) else ""


class CertificateError(ValueError):
    """Raised for files that cannot be used; its text is the whole message."""

    def __init__(self, flag: str, file: Path, problem: str, expected: str) -> None:
        super().__init__(
            f"{flag} {file}: {problem}. Expected {expected}. Fix: correct agents.cert_file and "
            "agents.key_file in config.yaml, or the files; a replaced file is taken without a restart."
        )


class Certificate(NamedTuple):
    """What TLS needs, when the certificate expires (Unix seconds), and whether others may read its key."""

    context: ssl.SSLContext
    expires: float
    exposed: bool


class CertificateFiles:
    """A certificate and its key in files: ``current`` is the last that could be used, if any could.

    Call ``look`` every half second or so. It logs what is wrong with the files.
    """

    def __init__(self, file: Path, key: Path) -> None:
        self.current: Certificate | None = None
        self._file, self._key = file, key
        self._seen, self._loaded = file_marks(file, key), file_marks()
        self._expiry_said = 0.0

    def look(self) -> None:
        """Take files that were replaced, once both of them stay as they are."""
        found = file_marks(self._file, self._key)
        if found != self._seen:
            self._seen = found  # the other file may be about to be replaced too
        elif found != self._loaded:
            self._loaded = found
            try:
                self.current = load_certificate(self._file, self._key)
            except CertificateError as error:
                then = "The last one stays in force." if self.current else "Agents cannot write until then."
                logger.error("%s %s", error, then)  # noqa: TRY400 - a user's mistake
            else:
                if self.current.exposed:
                    logger.warning("%s: every user can read this key. Fix: chmod o= %s", self._key, self._key)
        if self.current and self.current.expires < time.time() and self._expiry_said != self.current.expires:
            self._expiry_said = self.current.expires
            logger.error("%s has expired: agents cannot connect. Fix: replace the certificate.", self._file)


def file_marks(*files: Path) -> FileMarks:
    """Return what changes when one of the files does."""

    def mark(file: Path) -> _Mark | None:
        try:
            return _mark(file.stat())
        except OSError:
            return None

    return tuple(map(mark, files))


def load_certificate(certificate: Path, key: Path) -> Certificate:
    """Load a certificate with those between it and the root, and its key, all in PEM.

    Raises:
        CertificateError: A file cannot be read or is not PEM, or the key is another certificate's.
    """
    text, private = _text("--agents-cert", certificate), _text("--agents-key", key)
    try:
        first = re.search(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----", text)
        expires = _not_after(ssl.PEM_cert_to_DER_cert(first[0] if first else ""))
    except (ValueError, IndexError):
        raise CertificateError("--agents-cert", certificate, "is not a certificate", "one in PEM") from None
    expected = "without a passphrase"
    if "PRIVATE KEY-----" not in private:
        raise CertificateError("--agents-key", key, "holds no private key", f"one in PEM, {expected}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password="")  # without it, OpenSSL asks a terminal
    except (OSError, ValueError):
        problem = f"cannot be used with {certificate}"
        raise CertificateError("--agents-key", key, problem, f"its key, {expected}") from None
    return Certificate(context, expires, bool(key.stat().st_mode & 0o007))


def _not_after(der: bytes) -> float:
    """Return when an X.509 certificate expires, in Unix seconds; ValueError or IndexError if it is none."""

    def element(at: int) -> tuple[int, int]:
        """Return where the value of an element of DER begins, and where it ends."""
        length = der[at + 1]
        begins = at + 2 + (length & 0x7F if length > 0x7F else 0)
        return begins, begins + (int.from_bytes(der[at + 2 : begins], "big") if length > 0x7F else length)

    at, _ = element(0)
    at, _ = element(at)
    if der[at] == 0xA0:  # the version
        _, at = element(at)
    for kind in (0x02, 0x30, 0x30):  # the serial number, the signature's algorithm, the issuer
        if der[at] != kind:
            raise ValueError
        _, at = element(at)
    _, at = element(element(at)[0])  # behind "not before"
    begins, ends = element(at)
    text = der[begins:ends].decode("ascii")
    if der[at] == 0x17:  # a year of two digits
        text = f"{'19' if text[:2] >= '50' else '20'}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()


def _text(flag: str, file: Path) -> str:
    try:
        with file.open(encoding="ascii", errors="replace") as opened:
            return opened.read(1 << 20)
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise CertificateError(flag, file, problem, "a file that this user reads") from None


def _mark(status: os.stat_result) -> _Mark:
    # The last changes with the permissions, too.
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

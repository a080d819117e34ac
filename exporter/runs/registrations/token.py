"""The token that clients must show to register, where one is asked for."""

from __future__ import annotations

import base64
import hmac
import logging
from collections.abc import Mapping
from pathlib import Path

from exporter.runs.files import token_files
from exporter.runs.files.mounts import HungError, Mount
from exporter.runs.files.token_files import TokenFileError
from exporter.runs.registrations.registration import RefusedError

logger = logging.getLogger(__name__)

ASK = ("WWW-Authenticate", 'Basic realm="Stepwatch"')


class Token:
    """The one in a file, which is read at each request: a new one holds at once.

    A client shows it as ``Authorization: Bearer``, or as the password of ``Basic``, which is what
    becomes of ``http://any:TOKEN@host``. Without a file everyone is let in.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._logged: str | None = None
        self._thread = Mount(str(path))
        if path is not None:
            self._log(self._look(path))

    def require(self, headers: Mapping[str, str]) -> None:
        """Let a request pass.

        Raises:
            RefusedError: it shows no such token, or the file cannot be used.
        """
        if self._path is None:
            return
        try:
            path = self._path
            token = self._thread.call(lambda: token_files.read(path))
        except (TokenFileError, HungError) as problem:
            self._log(str(problem))
            words = "The file with the token cannot be used. Fix: the run exporter's log says what to change."
            raise RefusedError("token_file", "503 Service Unavailable", words) from None
        if not hmac.compare_digest(_shown(headers.get("authorization", "")), token.encode()):
            words = "A token is asked for. Expected: http://any:TOKEN@host:port as the server's address."
            raise RefusedError("token", "401 Unauthorized", words, ASK)

    def _look(self, path: Path) -> str | None:
        try:
            return self._thread.call(lambda: _fault(path) or token_files.open_to_all(path))
        except HungError as problem:
            return str(problem)

    def _log(self, problem: str | None) -> None:
        """Log once what is wrong with the file, which strangers need not know."""
        if problem is not None and problem != self._logged:
            logger.error("%s", problem)
        self._logged = problem


def _fault(path: Path) -> str | None:
    try:
        token_files.read(path)
    except TokenFileError as problem:
        return str(problem)
    return None


def _shown(authorization: str) -> bytes:
    """The token that a header shows; empty if none."""
    scheme, _, word = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return word.strip().encode()
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(word.strip(), validate=True).partition(b":")[2]
    except ValueError:
        return b""

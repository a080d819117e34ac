"""The way of an agent's samples to its hub: what the agent's Prometheus writes here is forwarded.

Prometheus drops at once what is answered with 4xx. So it hears 503, and keeps the samples, for all that a
person may correct: a password, a name, a clock.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from socket import gaierror
from threading import BoundedSemaphore
from typing import Any
from urllib.parse import urlsplit

from exporter import credentials
from exporter.http.exposition import Metric, by_label, own
from exporter.http.message import Answer, Later, Request, text
from exporter.http.routes import Table
from exporter.secret_shapes import masked

logger = logging.getLogger(__name__)

MOST_BODY = 8 << 20
CONNECT_SECONDS, SEND_SECONDS = 10.0, 100.0  # Prometheus waits longer than these together
MOST_REQUESTS = 8  # at once: Prometheus has two, and may have given up some that still wait
FRESH_SECONDS = 60.0  # after which the hub is asked again what time it is
AHEAD_SECONDS = 300.0  # a hub refuses what is ten minutes ahead, for good
SKEWED_SECONDS = 60.0
KEPT_SECONDS = 12 * 3600.0  # for which Prometheus keeps samples
QUIET_SECONDS = 60.0  # four of the slower scrapes
_KIND = "application/x-protobuf"
_FORWARDED = ("content-type", "content-encoding", "user-agent", "x-prometheus-remote-write-version")
_CLOCK = "Fix: correct the clock of this machine, or the hub's (`timedatectl`)."
_FIXES = {
    "^401": "`make agent NODE=name RENEW=1` on the hub makes a new password for the file of "
    "hub.password_file; hub.username, or node, must be the name that `make agent` lists there.",
    "^403": "the hub must let this login write.",
    "^40[45]": "hub.url must end in the path for remote write there.",
    "^3": "write the address to which it redirects in hub.url.",
    "HTTPS": "write https:// in hub.url.",
    "expired": "replace agents.cert_file on the hub, or correct the clock of this machine.",
    "mismatch": "write a name of the hub's certificate in hub.url, or give the hub a certificate with this "
    "name (subjectAltName).",
    "certificate": "hub.ca_file must be the hub's certificate, or that of its authority.",
    "TLS": "give the hub a certificate (agents.cert_file there), or write http:// for a tunnel.",
    "in time": "the hub's firewall must let the port in hub.url through.",
    "resolve": "the name in hub.url must resolve here.",
    "_file": "correct that file; it is read at each request.",
    "": "`make status` on the hub, and the port in hub.url must be its ports.agents.",
}
"""By what the reason has in it, as a pattern; the first one that fits."""


class _FileError(Exception):
    """Raised when a file of the login cannot be used; the text says which, and why."""


class Sender:
    """Forwards what is written to ``/hub/write`` to a remote-write endpoint, ``hub`` as in config.yaml."""

    def __init__(self, hub: Mapping[str, Any], password_file: Path | None) -> None:
        self._hub, self._password_file = hub, password_file
        self._idle: list[HTTPConnection] = []
        self._free = BoundedSemaphore(MOST_REQUESTS)
        self._results = dict.fromkeys(("taken", "kept", "refused"), 0)
        self._asked = time.time()  # when Prometheus last wrote, in Unix seconds, as the next ones
        self._answered = self._taken = self._newest = 0.0
        self._fault = ""
        # The hub's clock less the steady one here, if it says the time; and when it last answered.
        self._hubs: float | None = None
        self._heard = -FRESH_SECONDS

    def routes(self) -> Table:
        """Return the pages, by path."""
        return {"/hub/write": {"POST": self._write}, "/api/v1/findings": {"GET": self._report}}

    def stop(self) -> None:
        """End the connections that stay open."""
        while self._idle:
            self._idle.pop().close()

    @property
    def faults(self) -> tuple[str, ...]:
        """What keeps samples from the hub, each in one sentence with its fix."""
        if (quiet := time.time() - self._asked) > QUIET_SECONDS:
            return (f"The agent's Prometheus has sent nothing for {_duration(quiet)}. Fix: read its log.",)
        return (self._fault,) if self._fault else ()

    def samples(self) -> Iterator[Metric]:
        """Yield when the hub last took samples, and what became of the requests."""
        yield own("hub_last_write_timestamp_seconds", "When the hub last took samples.", self._taken)
        results = by_label("result", self._results)
        yield own("hub_requests_total", "Remote writes to the hub, by outcome.", results)

    def _report(self, _: Request) -> Answer:
        hub = "://".join(urlsplit(self._hub["url"])[:2])
        found = {"checked": self._answered, "hub": hub, "taken": self._taken, "faults": self.faults}
        return Answer("200 OK", "application/json", json.dumps(found).encode())

    def _write(self, request: Request) -> Answer | Later:
        headers = request.headers
        if headers.get("content-type") != _KIND or {"origin", "sec-fetch-site"} & headers.keys():
            return text("415 Unsupported Media Type", f"Expected: Prometheus' remote write, {_KIND}.\n")
        login, shown = "", headers.get("authorization", "")
        with suppress(OSError):
            login = credentials.login(self._password_file).get("Authorization", "")
        if not (login and hmac.compare_digest(shown.encode(), login.encode())):
            return text("503 Service Unavailable", f"Expected: the user {credentials.INTERNAL}.\n")
        self._asked = time.time()
        if not self._free.acquire(blocking=False):
            return text("503 Service Unavailable", "Too many requests wait for the hub.\n")
        return partial(self._forwarded, request)

    def _forwarded(self, request: Request) -> Answer:
        """Forward a request; returns what Prometheus hears."""
        result, status = "kept", 503
        try:
            if not (fault := self._held()):
                status, words = self._ask("POST", request)
                result, fault = self._judged(status, words)
        except (OSError, HTTPException, ValueError, _FileError) as problem:
            fault = _kept(_explained(problem))
        finally:
            self._free.release()
        if fault != self._fault:
            logger.warning("%s", fault or "The hub takes the samples again.")
        self._answered, self._fault = time.time(), fault
        self._results[result] += 1
        heard = {"taken": "200 OK", "kept": "503 Service Unavailable", "refused": f"{status} Refused"}
        return text(heard[result], f"{fault}\n")

    def _held(self) -> str:
        """Return why samples must wait, if so: what is stamped ahead of time is taken once it is past."""
        unsure = self._fault or time.monotonic() - self._heard > FRESH_SECONDS
        if unsure or self._clock()[1] >= AHEAD_SECONDS:
            status, words = self._ask("GET", None)
            if status == 400 and "HTTPS" in words:  # of a POST it would only reset the connection
                return _kept(f"{status} {words}")
        off, beyond = self._clock()
        if beyond < AHEAD_SECONDS:
            return ""
        says = f"was ahead of the hub's: samples of that time are taken in {_duration(beyond)}"
        if off >= AHEAD_SECONDS:
            says = f"is {_duration(off)} ahead of the hub's, which would refuse the samples"
        return f"The clock of this machine {says}. They are kept for 12h and sent later. {_CLOCK}"

    def _clock(self) -> tuple[float, float]:
        """Return by how many seconds this machine's clock, and the newest sample, are ahead of the hub's."""
        if self._hubs is None:
            return 0.0, 0.0
        now = time.time()
        off = now - (time.monotonic() + self._hubs)
        self._newest = max(self._newest, now)
        if off < AHEAD_SECONDS and self._newest - now > KEPT_SECONDS:
            self._newest = now  # no one keeps samples that long
        return off, self._newest - now + off

    def _judged(self, status: int, words: str) -> tuple[str, str]:
        """Return what became of samples that the hub answered so, and the fault, if there is one."""
        off, beyond = self._clock()
        if 200 <= status < 300:
            self._taken = time.time()
            side = "ahead of" if off > 0 else "behind"
            says = f"{_duration(abs(off))} {side} the hub's: alerts about this node may not fire"
            skewed = f"The clock of this machine is {says}. {_CLOCK}"
            return "taken", skewed if abs(off) >= SKEWED_SECONDS else ""
        future = "too far in the future" in words or "out of bounds" in words
        if status in (400, 413, 422) and not (future and beyond > SKEWED_SECONDS):
            lost = f"The hub refuses samples for good, which are lost: {status} {words}"
            return "refused", f"{lost}. Fix: read the hub's log."
        return "kept", _kept(f"{status} {words}")

    def _ask(self, method: str, request: Request | None) -> tuple[int, str]:
        """Ask the hub; returns the status and the beginning of what it says. Notes what time it says."""
        hub, parts = self._hub, urlsplit(self._hub["url"])
        name = "token_file" if hub.get("token_file") else "password_file"
        secret, why = "", "is empty"
        try:
            secret = Path(hub[name]).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as problem:
            why = f"cannot be read ({type(problem).__name__})"
        if not secret:
            raise _FileError(f"hub.{name} {hub[name]} {why}")
        login = credentials.authorization(secret, hub.get("username", ""))
        login = f"Bearer {secret}" if name == "token_file" else login
        headers = {"Accept-Encoding": "identity", **hub.get("headers", {}), "Authorization": login}
        if request:
            headers |= {each: request.headers[each] for each in _FORWARDED if each in request.headers}
        target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        while True:
            known = self._idle.pop() if self._idle else None
            connection = known or self._connected()
            try:
                connection.request(method, target, request and request.body, headers)
                answer = connection.getresponse()
                words = answer.read(1000).decode("utf-8", "replace")
                break
            except (OSError, HTTPException) as problem:
                connection.close()
                if not known or isinstance(problem, TimeoutError):  # else the hub had closed it
                    raise
        self._heard = time.monotonic()
        with suppress(ValueError, TypeError):
            self._hubs = parsedate_to_datetime(answer.getheader("Date", "")).timestamp() - self._heard
        if answer.isclosed() and not answer.will_close:
            self._idle.append(connection)
        else:
            connection.close()
        said = masked(" ".join(words.split())[:300].replace(secret, "***").replace(login.split()[1], "***"))
        return answer.status, f"{answer.reason}: {said}" if said else answer.reason

    def _connected(self) -> HTTPConnection:
        parts, file = urlsplit(self._hub["url"]), self._hub.get("ca_file")
        host, port, seconds = parts.hostname or "", parts.port, CONNECT_SECONDS
        connection = HTTPConnection(host, port, timeout=seconds)
        if parts.scheme == "https":
            try:
                context = ssl.create_default_context(cafile=file)
            except OSError as problem:
                raise _FileError(f"hub.ca_file {file}: {problem.strerror or problem}") from None
            # As Prometheus judges: a certificate may be trusted itself, and need not have every extension.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            connection = HTTPSConnection(host, port, timeout=seconds, context=context)
        connection.connect()
        connection.sock.settimeout(SEND_SECONDS)
        return connection


def _explained(problem: Exception) -> str:
    """Return what keeps the hub from answering."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {problem.verify_message.rstrip('.')}"
    if isinstance(problem, ssl.SSLError):
        return f"it does not speak TLS ({problem.reason})"
    if isinstance(problem, TimeoutError):
        return "it does not answer in time"
    if isinstance(problem, gaierror):
        return f"its name does not resolve ({problem.strerror})"
    if isinstance(problem, _FileError):
        return str(problem)
    return getattr(problem, "strerror", None) or type(problem).__name__


def _kept(reason: str) -> str:
    fix = next(fix for pattern, fix in _FIXES.items() if re.search(pattern, reason))
    return f"The hub takes no samples; they are kept for 12h and sent later: {reason}. Fix: {fix}"


def _duration(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60}h {minutes % 60}m" if minutes >= 60 else f"{minutes}m"

"""What is read, who is told, and what fires, as the parts themselves say."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass

from stepwatch import firing, pages
from stepwatch.tables import Say, duration

_DOWN = r'^stepwatch_target_up\{name="([^"]+)",source="(?:mlflow|prometheus_page)"\} 0\.0$'
"""Of what config.yaml names; pages that are registered come and go."""

_HUNG = r'^stepwatch_mount_hung_since_timestamp_seconds\{mount="([^"]+)"\} (\S+)$'

_FIRST_LOOK = 3
"""Seconds that an exporter which has just started gets to look at its files."""


@dataclass(frozen=True)
class News:
    """Whom to ask, and how to put it.

    ``exporter``, ``alertmanager`` and ``watchdog`` are host:port, empty if there is no such part; ``shows``
    says what the exporter reads (`the runs in FOLDER`), ``log`` where people read what it logs.
    """

    exporter: str
    alertmanager: str
    watchdog: str
    shows: str
    log: str

    def tell(self, say: Say) -> bool:
        """Tell of runs, of what cannot be read, of receivers, of alerts and of what keeps those from coming.

        Returns:
            Whether nothing does, as far as the watchdog knows.
        """
        if self.exporter:
            page = pages.read(self._metrics)
            say(f"\n{self.shows[:1].upper()}{self.shows[1:]}: {_runs(page)}.")
            self._tell_hung(page, say)
            self._tell_left_out(page, say)
            self._tell_unreadable(page, say)
            self._tell_silent(page, say)
            self._tell_unjudged(page, say)
        if self.alertmanager:
            say(f"Receivers: {_receivers(self.alertmanager)}.")
            if alerts := firing.firing(self.alertmanager):
                say("\n  ".join(["\nFiring:", *alerts]))
        return self._tell_faults(say)

    def _tell_faults(self, say: Say) -> bool:
        page = pages.read(f"http://{self.watchdog}/api/v1/findings") if self.watchdog else '{"findings": []}'
        if page is None:
            say("\nThe watchdog does not answer: what keeps the stack from alerting is not known.")
            return False
        faults = [f"{each['summary']}. {each['description']}" for each in json.loads(page)["findings"]]
        if faults:
            say("\n  ".join(["\nAlerting is broken:", *faults]))
        return not faults

    def tell_unreadable(self, say: Say) -> None:
        """Tell what the exporter could not read at its first look, if anything."""
        deadline = time.monotonic() + _FIRST_LOOK
        while not _looked(page := pages.read(self._metrics, timeout=1)) and time.monotonic() < deadline:
            time.sleep(0.1)
        self._tell_unreadable(page, say)

    def _tell_hung(self, page: str | None, say: Say) -> None:
        for mount, since in re.findall(_HUNG, page or "", re.MULTILINE):
            say(
                f"{mount} has not answered for {duration(time.time() - float(since))}: the runs below it are "
                "not watched until it does. Fix: repair the file server, or unmount the folder."
            )

    def _tell_left_out(self, page: str | None, say: Say) -> None:
        if files := pages.metric(page or "", 'stepwatch_files{kind="left_out"}'):
            say(
                f"{files:.0f} files are not read: the exporter reads the newest 5000 without a record. "
                "Fix: name the folder or glob that holds the logs only."
            )
        if runs := pages.metric(page or "", 'stepwatch_left_out_runs{state="running"}'):
            say(
                f"{runs:.0f} live runs are not watched: the exporter watches 400. "
                "Fix: start another Stepwatch for some of the folders."
            )
        if runs := pages.metric(page or "", 'stepwatch_left_out_runs{state="ended"}'):
            say(f"{runs:.0f} ended runs are not shown: the exporter shows 400 runs, live ones first.")

    def _tell_unreadable(self, page: str | None, say: Say) -> None:
        count = pages.metric(page or "", 'stepwatch_files{kind="unreadable"}')
        if count:
            say(
                f"The exporter may not read everything there: {count:.0f} files or folders, counted as "
                f"unreadable. {self.log} names them, with the cure of each: `chmod g+r` or `o+r` for a file, "
                "`chmod g+rx` or `o+rx` for a folder. Then they are read within seconds, without `make up`."
            )

    def _tell_silent(self, page: str | None, say: Say) -> None:
        for name in re.findall(_DOWN, page or "", re.MULTILINE):
            say(f"{name} gives no answer that can be read; {self.log} says why.")

    def _tell_unjudged(self, page: str | None, say: Say) -> None:
        if count := pages.metric(page or "", "stepwatch_unjudged_runs"):
            say(
                f"Runs without a key that rules know: {count:.0f}. {self.log} names them; "
                "say below signals in config.yaml what their keys mean."
            )

    @property
    def _metrics(self) -> str:
        return f"http://{self.exporter}/metrics"


def _looked(page: str | None) -> bool:
    return bool(pages.metric(page or "", "stepwatch_last_poll_timestamp_seconds"))


def _runs(page: str | None) -> str:
    """How many runs there are, by their states."""
    if page is None:
        return "not known, as the exporter does not answer"
    found = re.findall(r'^stepwatch_runs\{state="(\w+)"\} ([1-9]\d*)\.0$', page, re.MULTILINE)
    return ", ".join(f"{count} {state}" for state, count in found) or "none yet"


def _receivers(alertmanager: str) -> str:
    page = pages.read(f"http://{alertmanager}/api/v2/receivers")
    if page is None:
        return "not known, as Alertmanager does not answer"
    # Those in brackets are made by us, for nobody and for tests.
    names = [receiver["name"] for receiver in json.loads(page) if not receiver["name"].startswith("(")]
    return ", ".join(names) or "none, so alerts are sent to nobody"

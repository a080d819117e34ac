"""Refuse requests that pages of other origins make a browser send to Prometheus or Alertmanager.

Stricter than the check of the exporters, since here one request can mute every alert. A page counts as
foreign unless it came from the requested address or from an origin of ``links``; another port of 127.0.0.1 is
foreign too.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import urlsplit

from multidict import CIMultiDictProxy

from exporter.http.message import BAD_REQUEST, Answer, text
from exporter.http.routes import OWN_NAMES, is_known, refusal

_ORIGIN = re.compile(r"(https?)://(.+)")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}

_NOT_FROM_ELSEWHERE = text(
    "403 Forbidden",
    "Sec-Fetch-Site: a web page of another origin sent this request. Expected: a followed link, or a request "
    "from a page of this address. Fix: open the address itself; in a program, omit the header.\n",
)


class OriginCheck:
    """Detects requests of foreign pages.

    ``origins`` are those of ``links`` in config.yaml, such as ``https://prometheus.example.org``, in
    lower case and without a default port; they may be replaced at any time.
    """

    def __init__(self, origins: Collection[str]) -> None:
        self.origins = origins

    def refusal(self, method: str, headers: CIMultiDictProxy[str]) -> Answer | None:
        """Return why a request is refused, ``None`` if it is not."""
        hosts, origins = headers.getall("Host", ["localhost"]), headers.getall("Origin", [])
        if len(hosts) > 1 or len(origins) > 1:
            return BAD_REQUEST
        host = hosts[0]
        names = {name for origin in self.origins if (name := urlsplit(origin).hostname)}
        if not is_known(host, OWN_NAMES | names):
            return refusal("Host", host)
        if origins:
            return self._judged(origins[0], host.lower())
        # Browsers name no origin when they load a picture or a script, whose query may be an expensive one,
        # nor a frame, in which a reader can be led to press a button. A link that is followed is harmless:
        # neither program changes anything by GET.
        mode, destination = headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")
        followed = method in ("GET", "HEAD") and (mode, destination) == ("navigate", "document")
        own = headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        return None if own or followed else _NOT_FROM_ELSEWHERE

    def _judged(self, origin: str, host: str) -> Answer | None:
        found = _ORIGIN.fullmatch(origin.lower())
        if found:
            default = _DEFAULT_PORTS[found[1]]
            if found[0] in self.origins or found[2].removesuffix(default) == host.removesuffix(default):
                return None
        return text(
            "403 Forbidden",
            f"Origin: {origin[:200]!r} is not the origin of this address. Expected: the requested address "
            "with its port, or a URL below `links` in config.yaml. Fix: open that address itself, or add the "
            "URL that you use to `links` and run `make up`.\n",
        )

"""When the certificate of a hub expires, read from its file."""

from __future__ import annotations

import re
import ssl
from datetime import datetime, timezone
from pathlib import Path


def expiry(file: Path) -> float:
    """Return when the first certificate (PEM) of a file expires, in Unix seconds; 0 if it has none."""
    try:
        text = file.read_text(encoding="ascii", errors="replace")
        first = re.search(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----", text)
        der = ssl.PEM_cert_to_DER_cert(first[0] if first else "")

        def element(at: int) -> tuple[int, int]:
            """Return where the value of an element of DER begins, and where it ends."""
            length = der[at + 1]
            begins = at + 2 + (length & 0x7F if length > 0x7F else 0)
            return begins, begins + (int.from_bytes(der[at + 2 : begins], "big") if length > 0x7F else length)

        at, _ = element(element(0)[0])
        if der[at] == 0xA0:  # the version
            _, at = element(at)
        for _ in range(3):  # the serial number, the signature's algorithm, the issuer
            _, at = element(at)
        _, at = element(element(at)[0])  # behind "not before"
        begins, ends = element(at)
        digits = der[begins:ends].decode("ascii")
        if der[at] == 0x17:  # a year of two digits
            digits = f"{'19' if digits[:2] >= '50' else '20'}{digits}"
        return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()
    except (OSError, ValueError, IndexError):
        return 0.0

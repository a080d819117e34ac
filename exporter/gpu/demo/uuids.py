"""Names that look like the driver's."""

from __future__ import annotations

from random import Random


def uuid(kind: str, dice: Random) -> str:
    """A name of this kind, ``GPU`` or ``MIG``."""
    digits = f"{dice.getrandbits(128):032x}"
    return f"{kind}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

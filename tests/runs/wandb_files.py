"""W&B's transaction log as W&B 0.31 writes it: LevelDB's chunks, with messages of its protocol in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from struct import pack
from typing import Any
from zlib import crc32

from exporter.runs.formats.protobuf import SIZED, VARINT, coded, key

HEADER = b":W&B\xe1\xbe\x00"
BLOCK = 32 * 1024
CHUNK = 7


def sized(number: int, content: bytes) -> bytes:
    """A field of bytes, or a message within one."""
    return coded(key(number, SIZED)) + coded(len(content)) + content


def history(values: Mapping[str, Any], step: int) -> bytes:
    """A call of ``wandb.log``, with what W&B adds to it."""
    logged = {**values, "_step": step, "_runtime": 1.5 * step, "_timestamp": 1_700_000_000.5 + step}
    return sized(2, b"".join(map(_item, logged, logged.values())) + sized(2, _varint(1, step)))


def printed(text: str) -> bytes:
    """What was printed, as it was: a line, or a bar that redraws itself."""
    return sized(13, _varint(1, 1) + sized(3, text.encode()))


def exited(code: int) -> bytes:
    """How the process ended. A zero is not written."""
    return sized(18, (_varint(1, code) if code else b"") + _varint(2, 9))


def summary(values: Mapping[str, Any]) -> bytes:
    """What W&B shows of the run as a whole: the last of each key."""
    return sized(3, b"".join(map(_item, values, values.values())))


def framed(*records: bytes) -> bytes:
    """A file with these records."""
    file = bytearray(HEADER)
    for number, message in enumerate(records, 1):
        record = _varint(1, number) + message
        begun = False
        while True:
            left = BLOCK - len(file) % BLOCK
            if left < CHUNK:
                file += bytes(left)
                continue
            part, record = record[: left - CHUNK], record[left - CHUNK :]
            kind = (3 if begun else 2) if record else (4 if begun else 1)
            file += pack("<IHB", crc32(part, crc32(bytes([kind]))), len(part), kind) + part
            begun = True
            if not record:
                break
    return bytes(file)


def _item(name: str, value: Any) -> bytes:
    parts = b"".join(sized(2, part.encode()) for part in name.split("."))
    return sized(1, parts + sized(16, json.dumps(value).encode()))


def _varint(number: int, value: int) -> bytes:
    return coded(key(number, VARINT)) + coded(value)

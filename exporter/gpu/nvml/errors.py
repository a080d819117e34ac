"""What NVML's error codes mean for a reading, a GPU, or the whole connection."""

from __future__ import annotations

from exporter.gpu import contract
from exporter.gpu.backend import BackendError, CardError, ReadError, UnsupportedError

OK = 0
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
TIMEOUT = 10
FUNCTION_NOT_FOUND = 13
UNKNOWN = 999

_NAMES = {
    1: "uninitialized",
    INVALID_ARGUMENT: "invalid_argument",
    NOT_SUPPORTED: "not_supported",
    4: "no_permission",
    NOT_FOUND: "not_found",
    INSUFFICIENT_SIZE: "insufficient_size",
    8: "insufficient_power",
    9: "driver_not_loaded",
    TIMEOUT: "timeout",
    11: "irq_issue",
    12: "library_not_found",
    FUNCTION_NOT_FOUND: "function_not_found",
    14: "corrupted_inforom",
    15: "lost",
    16: "reset_required",
    17: "operating_system",
    18: "version_mismatch",
    19: "in_use",
    20: "memory",
    21: "no_data",
    23: "insufficient_resources",
    25: "argument_version_mismatch",
    26: "deprecated",
    27: "not_ready",
    28: "lost",
    29: "invalid_state",
    UNKNOWN: contract.UNKNOWN,
}
"""NVML's own words, but for 15 (GPU is lost), 28 (GPU not found) and 18 (library and driver differ)."""

NOT_HERE = frozenset((INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, 25, 26))
"""This GPU or driver does not know what it was asked."""

_KINDS: dict[int, type[ReadError]] = {
    **dict.fromkeys((*NOT_HERE, 4), UnsupportedError),
    **dict.fromkeys((15, 16, 28), CardError),
    **dict.fromkeys((1, 9, 12, 18), BackendError),
}


def name(code: int) -> str:
    """A word for an error code."""
    return _NAMES.get(code, f"error_{code}")


def meaning(code: int) -> ReadError:
    """The problem that the error code of one reading stands for."""
    return _KINDS.get(code, ReadError)(name(code))


def is_fatal(problem: ReadError) -> bool:
    """Does it concern more than one reading?"""
    return isinstance(problem, (CardError, BackendError))

"""What NVML's error codes mean for a reading, a GPU, or the whole connection."""

from __future__ import annotations

import pynvml

from exporter.gpu.backend import BackendError, CardError, ReadError, UnsupportedError

OK = 0
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
FUNCTION_NOT_FOUND = 13
UNKNOWN = 999

_NAMES: dict[int, str] = {
    **{
        value: name.removeprefix("NVML_ERROR_").lower()
        for name, value in vars(pynvml).items()
        if name.startswith("NVML_ERROR_")
    },
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "version_mismatch",
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost",
    pynvml.NVML_ERROR_GPU_NOT_FOUND: "lost",
}

_KINDS: dict[int, type[ReadError]] = {
    **dict.fromkeys(
        (
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            pynvml.NVML_ERROR_INVALID_ARGUMENT,
            pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            pynvml.NVML_ERROR_DEPRECATED,
            pynvml.NVML_ERROR_NO_PERMISSION,
        ),
        UnsupportedError,
    ),
    **dict.fromkeys(
        (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_GPU_NOT_FOUND, pynvml.NVML_ERROR_RESET_REQUIRED),
        CardError,
    ),
    **dict.fromkeys(
        (
            pynvml.NVML_ERROR_UNINITIALIZED,
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
            pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        ),
        BackendError,
    ),
}


def name(code: int) -> str:
    """A word for an error code."""
    return _NAMES.get(code, f"error_{code}")


def meaning(error: pynvml.NVMLError) -> ReadError:
    """The problem that an error of one reading stands for."""
    return _KINDS.get(error.value, ReadError)(name(error.value))

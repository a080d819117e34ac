"""Our GPUs under the names of NVIDIA's DCGM exporter, by rules that Prometheus records.

For the public dashboard 12239, which selects by `instance` and `gpu`: what it shows, and no more. The
names and their units are those of the GPU exporter's `--compat dcgm`, for which these are no substitute
where another Prometheus reads the page.
"""

from __future__ import annotations

from collections.abc import Iterator

from exporter.gpu.dcgm import TWINS, Twin
from stepwatch.alerts.expression import number

SHOWN = (
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
)


def rules() -> Iterator[tuple[str, str]]:
    """Name and expression of each."""
    for name in SHOWN:
        (twin,) = (twin for twin in TWINS if name in twin.names)
        yield name, _recorded(name, twin)


_NAMED = """label_replace(label_replace(label_replace(
    max by (instance, gpu, uuid, name, pci_bus_id) (gpu_info),
  "UUID", "$1", "uuid", "(.*)"), "modelName", "$1", "name", "(.*)"), "device", "nvidia$1", "gpu", "(.*)")"""
"""What each GPU is, by our labels and NVIDIA's."""


def _recorded(name: str, twin: Twin) -> str:
    """The metric with NVIDIA's labels; none where a DCGM exporter, or ours itself, reports that GPU.

    What is scraped has a job, and what is recorded here has none.
    """
    matchers = ",".join(f'{label}="{value}"' for label, value in twin.labels.items())
    selector = f"{twin.metric}{{{matchers}}}" if matchers else twin.metric
    value = f"max by (instance, gpu, uuid) ({selector})"
    return (
        "max by (instance, gpu, UUID, device, modelName, pci_bus_id) (\n"
        f"  {_NAMED}\n"
        f"  * on (instance, gpu, uuid) group_left () ({number(twin.factor)} * {value})\n"
        ")\n"
        f'unless on (UUID) {name}{{job!=""}}'
    )

"""Alerts on the heat, power, memory and links of a GPU."""

from __future__ import annotations

from stepwatch.alerts.model.alert import (
    DOCUMENTED,
    JUDGED,
    RATIO,
    REPORTED,
    WHOLE,
    Condition,
    CriticalBlock,
    WarningBlock,
    hold,
)
from stepwatch.alerts.model.expression import Expression, Limit
from stepwatch.alerts.model.targets import counted, gpu, gpu_alert, gpus
from stepwatch.schema import scalars
from stepwatch.schema.scalars import Duration, PositiveSpan, Span, Switch
from stepwatch.schema.section import default

TEMPERATURE = gpu("gpu_temperature_celsius", sensor="gpu")
SLOWS_DOWN = (TEMPERATURE + gpu("gpu_temperature_margin_celsius")) | gpu(
    "gpu_temperature_threshold_celsius", threshold="slowdown"
)
"""The temperature at which a GPU throttles itself. Newer cards report their margin to it."""

THROTTLE_WINDOW = "5m"
"""The window of the share of time in which a GPU was throttled."""

COOLING = "check fans, air flow and room temperature"


class GPUHot(WarningBlock):
    """A GPU is close to the temperature at which it throttles itself."""

    margin: scalars.Limit = default(
        5,
        "Degrees Celsius left. Cards under load keep 10 to 30; with 5, a warm afternoon throttles them.",
        JUDGED,
    )
    for_: Span = hold("2m", "Longer than a burst of work.", JUDGED)


GPU_HOT = gpu_alert(
    GPUHot,
    summary="GPU is close to its slowdown temperature",
    action=f"{COOLING}; then check what runs on it",
    conditions=(
        Condition(
            "margin to its slowdown temperature:",
            # Newer cards report their margin; for older ones it is the difference.
            (
                gpus("gpu_temperature_margin_celsius", "min")
                | gpus('gpu_temperature_threshold_celsius{threshold="slowdown"}')
                - gpus('gpu_temperature_celsius{sensor="gpu"}')
            )
            < Limit("margin"),
            signal="gpu_temperature_celsius",
            line=(">", SLOWS_DOWN - Limit("margin")),
        ),
    ),
    unit=" C",
)


def _throttled(*reasons: str) -> Expression:
    """The share of the last minutes in which one of the reasons held the clocks of a GPU down.

    By the driver's own count of the time, which no scrape can miss; where it has none, by each reading.
    """
    matcher = f'reason="{reasons[0]}"' if len(reasons) == 1 else f'reason=~"{"|".join(reasons)}"'
    by_time = gpus(f"rate(gpu_clock_event_seconds_total{{{matcher}}}[{THROTTLE_WINDOW}])")
    by_reading = gpus(f"avg_over_time(gpu_clock_event_active{{{matcher}}}[{THROTTLE_WINDOW}])")
    return by_time | by_reading


class GPUThermalThrottle(WarningBlock):
    """A GPU lowers its clocks because of heat."""

    throttled_ratio: scalars.Ratio = default(
        0.1,
        "Share of the last 5 minutes. Cards with sufficient cooling are at 0; a tenth of the time slows"
        " down all ranks of a run.",
        JUDGED,
    )
    for_: Span = hold("5m", "Longer than a brief temperature peak.", JUDGED)


GPU_THERMAL_THROTTLE = gpu_alert(
    GPUThermalThrottle,
    summary="GPU throttled by heat",
    action=f"{COOLING}; then lower the power limit",
    conditions=(
        Condition(
            "throttled by heat, share of 5 min:",
            _throttled("software_thermal", "hardware_thermal", "thermal") > Limit("throttled_ratio"),
            signal="gpu_clock_event_seconds_total",
        ),
    ),
    style=RATIO,
)


class GPUPowerBrake(WarningBlock):
    """The machine lowers a GPU's clocks by half or more (NVML): its power supply failed or is overloaded."""

    throttled_ratio: scalars.Ratio = default(
        0.01, "Share of the last 5 minutes: 3 s. A healthy machine never uses the brake.", JUDGED
    )
    for_: Span = hold("1m", "A brief power brake harms no run.", JUDGED)


GPU_POWER_BRAKE = gpu_alert(
    GPUPowerBrake,
    summary="GPU throttled by the power brake",
    action="check the machine's power supplies (`ipmitool sdr type 'Power Supply'`) and their feeds",
    conditions=(
        Condition(
            "throttled by the power brake, share of 5 min:",
            _throttled("power_brake") > Limit("throttled_ratio"),
            signal="gpu_clock_event_seconds_total",
        ),
    ),
    style=RATIO,
)


class GPUMemoryHigh(WarningBlock):
    """GPU memory is nearly full."""

    enabled: Switch = default(value=False, why="Off: rollout engines reserve nearly all of it by design.")
    used_ratio: scalars.Ratio = default(0.95, "Share of the memory in use.", JUDGED)
    for_: Span = hold("10m", "Longer than the peak of a step.", JUDGED)


GPU_MEMORY_HIGH = gpu_alert(
    GPUMemoryHigh,
    summary="GPU memory is nearly full",
    action="`nvidia-smi` lists the processes that use it",
    conditions=(
        Condition(
            "memory in use:",
            gpu("gpu_memory_used_bytes") / gpu("gpu_memory_total_bytes") > Limit("used_ratio"),
            signal="gpu_memory_used_bytes",
            line=(">", Limit("used_ratio") * gpu("gpu_memory_total_bytes")),
        ),
    ),
    style=RATIO,
)


class NVLinkErrors(WarningBlock):
    """NVLinks of a GPU fail and recover repeatedly. If a link stays down, GPUXid 74 pages."""

    crc_per_second: scalars.Limit = default(
        100,
        "Corrupted packets per second, which the link sends again; fewer are harmless (limits of NVIDIA's"
        " DCGM).",
        DOCUMENTED,
    )
    errors: scalars.Limit = default(
        2,
        "More serious errors of one kind (data, replays, recoveries, ECC) within an hour. Of the links of"
        " 320 GPUs, only one had any: about 9 an hour, five days before it failed (marin #9086). DCGM warns"
        " of the first.",
        REPORTED,
    )
    for_: Span = hold("1m", "Longer than a single bad scrape.", JUDGED)


NVLINK_ERRORS = gpu_alert(
    NVLinkErrors,
    summary="NVLink errors on a GPU",
    action="`nvidia-smi nvlink -e -i {gpu}`; check the GPU at the other end, its bridge or cable",
    conditions=(
        # Corrupted packets are normal and sent again: only their rate counts. Of the others, the worst kind.
        Condition(
            "corrupted packets/s:",
            gpus('rate(gpu_nvlink_errors_total{type=~"crc_flit|crc"}[5m])') > Limit("crc_per_second"),
        ),
        Condition(
            "errors of one kind within 1 h:",
            counted(
                'gpu_nvlink_errors_total{type=~"crc_data|replay|recovery|ecc|link_recovery'
                '|link_recovery_failed"}'
            )
            > Limit("errors"),
        ),
    ),
    style=WHOLE,
)


class PCIeDegraded(WarningBlock):
    """A GPU's PCIe link is slower than card and slot support: a bad riser, cable or slot.

    NVML reports what both support, so a slot with fewer lanes does not fire.
    """

    busy_ratio: scalars.Ratio = default(
        0.3, "Evaluated only if the GPU was busy for this share of 10 minutes: idle links slow down.", JUDGED
    )
    width_ratio: scalars.Ratio = default(
        1,
        "Minimum share of the lanes. Use 0.5 where two cards share one slot, which the driver cannot detect.",
        JUDGED,
    )
    for_: Span = hold("10m", "Longer than a link takes to retrain after a reset.", JUDGED)


def _link(kind: str, which: str) -> str:
    return f'gpu_pcie_link_{kind}{{kind="{which}"}}'


PCIE_DEGRADED = gpu_alert(
    PCIeDegraded,
    summary="PCIe link of a GPU is degraded",
    action="`nvidia-smi -q -d PCIE -i {gpu}`; reseat the card, check riser, cable and slot",
    # An idle link rests at a low generation: the best of 10 minutes counts.
    conditions=tuple(
        Condition(
            f"PCIe {words} in use, of those supported:",
            gpus(f"max_over_time({_link(kind, 'current')}[10m])") < limit,
        )
        for kind, words, limit in (
            ("generation", "generation", gpus(_link("generation", "max"))),
            ("width", "lanes", Limit("width_ratio") * gpus(_link("width", "max"))),
        )
    ),
    given=gpus("avg_over_time(gpu_utilization_ratio[10m]) or avg_over_time(gpu_graphics_active_ratio[10m])")
    > Limit("busy_ratio"),
    style=WHOLE,
)


class FabricDown(CriticalBlock):
    """A GPU has not joined the NVLink fabric, so CUDA does not start (error 802), or it lost NVLinks.

    Does not fire for a GPU without a fabric or without a bridge.
    """

    within: PositiveSpan = default(
        Duration.parse("1d"), "How long the number of active NVLinks is remembered.", JUDGED
    )
    for_: Span = hold("10m", "After a boot, the fabric manager takes minutes to start.", JUDGED)


FABRIC_DOWN = gpu_alert(
    FabricDown,
    summary="NVLinks of a GPU are down",
    action="`systemctl status nvidia-fabricmanager`, `nvidia-smi nvlink --status -i {gpu}`",
    conditions=(
        Condition(
            "state of the NVLink fabric (3: joined):",
            gpus("gpu_fabric_state") < 3,
            given=gpus("gpu_fabric_state") > 0,  # 0: without a fabric
        ),
        # Links that were never up have no bridge; split GPUs (MIG) do not use theirs.
        Condition(
            "NVLinks up, compared with the maximum within <within>:",
            gpus('gpu_nvlink_links{state="active"}')
            < gpus('max_over_time(gpu_nvlink_links{state="active"}[<within>s])'),
            sparing=gpus("gpu_mig_mode").equals(1),
        ),
    ),
    style=WHOLE,
)

ALERTS = (
    GPU_HOT,
    GPU_THERMAL_THROTTLE,
    GPU_POWER_BRAKE,
    GPU_MEMORY_HIGH,
    NVLINK_ERRORS,
    PCIE_DEGRADED,
    FABRIC_DOWN,
)

"""The `alerts` section: one block per alert, or per pair of alerts, by name."""

from __future__ import annotations

from stepwatch.config import (
    boxes,
    clocks,
    divergences,
    engines,
    events,
    gpu,
    host,
    limits,
    links,
    memory_errors,
    ray,
    rollouts,
    stack,
    updates,
    validation,
)
from stepwatch.config.block import Block
from stepwatch.config.section import Section


class Alerts(Section):
    """All blocks with their default limits."""

    NonFinite: limits.NonFinite = limits.NonFinite()
    Reward: limits.Reward = limits.Reward()
    RewardStagnation: limits.RewardStagnation = limits.RewardStagnation()
    NoLearningSignal: limits.NoLearningSignal = limits.NoLearningSignal()
    ValidationDrop: validation.ValidationDrop = validation.ValidationDrop()
    RewardHackSuspect: validation.RewardHackSuspect = validation.RewardHackSuspect()
    KL: limits.KL = limits.KL()
    KLSequence: divergences.KLSequence = divergences.KLSequence()
    KLTeacher: divergences.KLTeacher = divergences.KLTeacher()
    PolicyKLHigh: limits.PolicyKLHigh = limits.PolicyKLHigh()
    EntropyCollapse: limits.EntropyCollapse = limits.EntropyCollapse()
    EntropyExplosion: limits.EntropyExplosion = limits.EntropyExplosion()
    LengthRunaway: limits.LengthRunaway = limits.LengthRunaway()
    LengthCollapse: limits.LengthCollapse = limits.LengthCollapse()
    Truncation: limits.Truncation = limits.Truncation()
    GradNormHigh: limits.GradNormHigh = limits.GradNormHigh()
    ClipFractionHigh: updates.ClipFractionHigh = updates.ClipFractionHigh()
    PolicyLossPositive: updates.PolicyLossPositive = updates.PolicyLossPositive()
    CriticDiverged: updates.CriticDiverged = updates.CriticDiverged()
    RolloutMismatch: rollouts.RolloutMismatch = rollouts.RolloutMismatch()
    Staleness: rollouts.Staleness = rollouts.Staleness()
    SlowSteps: rollouts.SlowSteps = rollouts.SlowSteps()
    Stalled: events.Stalled = events.Stalled()
    RunFailed: events.RunFailed = events.RunFailed()
    RunVanished: events.RunVanished = events.RunVanished()
    RunStopped: events.RunStopped = events.RunStopped()
    RunFinished: events.RunFinished = events.RunFinished()
    NeverStarted: events.NeverStarted = events.NeverStarted()
    Restarting: events.Restarting = events.Restarting()
    ResumedWithLoss: events.ResumedWithLoss = events.ResumedWithLoss()
    GPULost: gpu.GPULost = gpu.GPULost()
    GPUXid: gpu.GPUXid = gpu.GPUXid()
    GPUECCUncorrectable: memory_errors.GPUECCUncorrectable = memory_errors.GPUECCUncorrectable()
    GPURowRemapPending: memory_errors.GPURowRemapPending = memory_errors.GPURowRemapPending()
    GPURowRemapFailed: memory_errors.GPURowRemapFailed = memory_errors.GPURowRemapFailed()
    GPURecoveryNeeded: memory_errors.GPURecoveryNeeded = memory_errors.GPURecoveryNeeded()
    GPUsMissing: boxes.GPUsMissing = boxes.GPUsMissing()
    GPUHot: gpu.GPUHot = gpu.GPUHot()
    GPUThermalThrottle: clocks.GPUThermalThrottle = clocks.GPUThermalThrottle()
    GPUPowerBrake: clocks.GPUPowerBrake = clocks.GPUPowerBrake()
    GPUMemoryHigh: gpu.GPUMemoryHigh = gpu.GPUMemoryHigh()
    GPUIdleWhileRunning: gpu.GPUIdleWhileRunning = gpu.GPUIdleWhileRunning()
    NVLinkErrors: links.NVLinkErrors = links.NVLinkErrors()
    PCIeDegraded: links.PCIeDegraded = links.PCIeDegraded()
    FabricDown: links.FabricDown = links.FabricDown()
    EngineGone: engines.EngineGone = engines.EngineGone()
    EngineQueue: engines.EngineQueue = engines.EngineQueue()
    EngineKVCacheFull: engines.EngineKVCacheFull = engines.EngineKVCacheFull()
    EnginePreemptions: engines.EnginePreemptions = engines.EnginePreemptions()
    EngineTruncated: engines.EngineTruncated = engines.EngineTruncated()
    RayWorkerOOM: ray.RayWorkerOOM = ray.RayWorkerOOM()
    RayNodeLost: ray.RayNodeLost = ray.RayNodeLost()
    RayObjectStoreSpilling: ray.RayObjectStoreSpilling = ray.RayObjectStoreSpilling()
    RayDiskLow: ray.RayDiskLow = ray.RayDiskLow()
    HostMemory: host.HostMemory = host.HostMemory()
    DiskLow: host.DiskLow = host.DiskLow()
    AlertingBroken: stack.AlertingBroken = stack.AlertingBroken()
    StateDiskLow: stack.StateDiskLow = stack.StateDiskLow()
    ExporterDown: events.ExporterDown = events.ExporterDown()
    TargetDown: events.TargetDown = events.TargetDown()
    SourceDown: stack.SourceDown = stack.SourceDown()
    GPUExporterStale: boxes.GPUExporterStale = boxes.GPUExporterStale()
    MountHung: stack.MountHung = stack.MountHung()
    SeriesLimit: stack.SeriesLimit = stack.SeriesLimit()
    ClockSkew: stack.ClockSkew = stack.ClockSkew()
    RuleFailures: events.RuleFailures = events.RuleFailures()
    NotificationFailures: events.NotificationFailures = events.NotificationFailures()
    ConfigReloadFailed: events.ConfigReloadFailed = events.ConfigReloadFailed()
    TSDBNearLimit: stack.TSDBNearLimit = stack.TSDBNearLimit()
    TSDBFailures: stack.TSDBFailures = stack.TSDBFailures()
    Watchdog: events.Watchdog = events.Watchdog()

    @classmethod
    def also_known_as(cls) -> dict[str, str]:
        """Return the block of each alert that is not called as its block."""
        blocks = {key: field.get_default() for key, field in cls.model_fields.items()}
        return {name: key for key, block in blocks.items() for name in block.names.values()}

    def block(self, name: str) -> Block:
        """Return the block of that name; AttributeError if there is none."""
        block: Block = getattr(self, name)
        return block

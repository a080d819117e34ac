"""The `alerts` section: one block per alert, or per pair of alerts, by name."""

from __future__ import annotations

from stepwatch.config import engines, events, gpu, host, limits, ray, stack
from stepwatch.config.block import Block
from stepwatch.config.section import Section


class Alerts(Section):
    """All blocks with their default limits."""

    NonFinite: limits.NonFinite = limits.NonFinite()
    Reward: limits.Reward = limits.Reward()
    RewardStagnation: limits.RewardStagnation = limits.RewardStagnation()
    NoLearningSignal: limits.NoLearningSignal = limits.NoLearningSignal()
    KL: limits.KL = limits.KL()
    PolicyKLHigh: limits.PolicyKLHigh = limits.PolicyKLHigh()
    EntropyCollapse: limits.EntropyCollapse = limits.EntropyCollapse()
    EntropyExplosion: limits.EntropyExplosion = limits.EntropyExplosion()
    LengthRunaway: limits.LengthRunaway = limits.LengthRunaway()
    LengthCollapse: limits.LengthCollapse = limits.LengthCollapse()
    Truncation: limits.Truncation = limits.Truncation()
    GradNormHigh: limits.GradNormHigh = limits.GradNormHigh()
    Stalled: events.Stalled = events.Stalled()
    RunFailed: events.RunFailed = events.RunFailed()
    RunVanished: events.RunVanished = events.RunVanished()
    RunStopped: events.RunStopped = events.RunStopped()
    RunFinished: events.RunFinished = events.RunFinished()
    GPULost: gpu.GPULost = gpu.GPULost()
    GPUXid: gpu.GPUXid = gpu.GPUXid()
    GPUHot: gpu.GPUHot = gpu.GPUHot()
    GPUMemoryHigh: gpu.GPUMemoryHigh = gpu.GPUMemoryHigh()
    GPUIdleWhileRunning: gpu.GPUIdleWhileRunning = gpu.GPUIdleWhileRunning()
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
    ExporterDown: events.ExporterDown = events.ExporterDown()
    TargetDown: events.TargetDown = events.TargetDown()
    SourceDown: stack.SourceDown = stack.SourceDown()
    SeriesLimit: stack.SeriesLimit = stack.SeriesLimit()
    ClockSkew: stack.ClockSkew = stack.ClockSkew()
    RuleFailures: events.RuleFailures = events.RuleFailures()
    NotificationFailures: events.NotificationFailures = events.NotificationFailures()
    ConfigReloadFailed: events.ConfigReloadFailed = events.ConfigReloadFailed()
    TSDBNearLimit: stack.TSDBNearLimit = stack.TSDBNearLimit()
    TSDBFailures: stack.TSDBFailures = stack.TSDBFailures()
    Watchdog: events.Watchdog = events.Watchdog()

    def block(self, name: str) -> Block:
        """Return the block of that name; AttributeError if there is none."""
        block: Block = getattr(self, name)
        return block

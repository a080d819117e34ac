"""The fixed rules that tutorials teach, as PromQL; a second stands for a step, as in every backtest."""

from __future__ import annotations

from stepwatch.backtest.judge import Rule

REWARD, KL = "max by (run) (rl_reward)", "max by (run) (rl_kl)"

RULES = (
    Rule("increase(reward[30]) < 0.01", "warning", "", f"increase(({REWARD})[30s:1s]) < 0.01"),
    Rule(
        "reward gain over 30 < 0.01", "warning", "", f"{REWARD} - max by (run) (rl_reward offset 30s) < 0.01"
    ),
    Rule("KL > 15 for 10", "critical", "", f"min_over_time(({KL})[10s:1s]) > 15"),
    Rule("KL > 0.2 for 5", "warning", "", f"min_over_time(({KL})[5s:1s]) > 0.2"),
    Rule(
        "reward 20 % below mean of 30, for 5",
        "critical",
        "",
        f"max_over_time(({REWARD})[5s:1s]) < 0.8 * avg_over_time(({REWARD})[30s:1s])",
    ),
)

METRICS = frozenset({"rl_reward", "rl_kl"})

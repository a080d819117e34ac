"""The cases of every rule about runs, one entry each, by topic.

To add a rule, add its entry there: its conditions, and the limits of each.
"""

from tests.rules.cases import Rule
from tests.rules.catalogue import entropy, gradient, kl, length, progress, reward, rollout, validation

RULES: tuple[Rule, ...] = (
    *reward.RULES,
    *validation.RULES,
    *kl.RULES,
    *entropy.RULES,
    *length.RULES,
    *gradient.RULES,
    *rollout.RULES,
    *progress.RULES,
)

"""What a default limit rests on: the sentence that ends its reason in the reference."""

from __future__ import annotations

RUNS = "Measured on public runs."
SIMULATED = "Measured on simulated runs."
COMPUTED = "Computed."
DOCUMENTED = "From the documents of those who make it."
REPORTED = "From public reports."
JUDGED = "Judged."
"""Chosen without a measurement of its own. Limits about runs are scored together on labelled public runs
(docs/alert-quality.md), those among them as well."""

EVERY = (RUNS, SIMULATED, COMPUTED, DOCUMENTED, REPORTED, JUDGED)

"""What a default limit rests on: the sentence that ends its reason in the reference."""

from __future__ import annotations

RUNS = "Measured on public runs."
SIMULATED = "Measured on simulated runs."
COMPUTED = "By calculation."
DOCUMENTED = "From the vendor's documentation."
REPORTED = "From public reports."
JUDGED = "An estimate."
"""Chosen without a measurement of its own. Limits about runs are scored together on labelled public runs
(docs/alert-quality.md), those among them as well."""

EVERY = (RUNS, SIMULATED, COMPUTED, DOCUMENTED, REPORTED, JUDGED)

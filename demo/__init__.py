"""Simulated training runs, for those who want to see Stepwatch work before they have a run of their own."""

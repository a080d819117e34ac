"""Checkpoints of a wrapped trainer: which are complete, and the best ones out of reach of its rotation."""

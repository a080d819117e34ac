"""Checkpoints of a wrapped trainer: which are complete, and the best ones out of reach of its rotation.

The wrapper starts a watcher, a process that imports little: it looks at the trainer's folder and notes
what is complete. For each new checkpoint it starts a keeper, a process of a second or two that reads the log
with the run exporter's readers and keeps the best. Neither can harm the training or outlives the wrapper.
"""

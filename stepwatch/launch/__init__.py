"""`stepwatch run`: runs a trainer as a child process, and records how it ends."""

"""Facts about processes, read from `/proc`: who writes a log, which processes of a run use GPUs."""

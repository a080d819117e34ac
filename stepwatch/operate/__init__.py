"""Commands of an operator about runs, limits and GPUs.

Each takes the configuration file and ``say``, which gets each line for the user, and returns an exit code.
"""

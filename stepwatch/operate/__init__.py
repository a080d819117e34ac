"""Commands of an operator about runs, limits and GPUs."""

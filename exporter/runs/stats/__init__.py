"""Statistics over the steps of one signal."""

"""The operator's side: configuration, rendering, native processes."""

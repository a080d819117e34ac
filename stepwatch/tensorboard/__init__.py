"""All runs as TensorBoard's event files, for those who live in TensorBoard."""

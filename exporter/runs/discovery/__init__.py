"""Discovery: servers that a run starts and ends, found where it names them, as targets of Prometheus."""

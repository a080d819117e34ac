"""Discovery: servers that a run starts and ends, found where they are named or registered, for Prometheus."""

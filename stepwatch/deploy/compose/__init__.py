"""The stack as containers, managed by `docker compose`."""

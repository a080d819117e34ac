"""The stack as containers: brought up, looked at, taken down, through `docker compose`."""

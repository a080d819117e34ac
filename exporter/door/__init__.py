"""The door of a hub: receives remote write of agents, each with its own token, for Prometheus."""

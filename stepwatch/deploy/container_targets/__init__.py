"""Containers that become targets of Prometheus by their labels."""

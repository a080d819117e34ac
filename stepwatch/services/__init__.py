"""The running services: settings in effect, reload, firing alerts, health."""

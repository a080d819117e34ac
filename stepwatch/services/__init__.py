"""The running services: settings in force, reload, alerts that fire, health."""

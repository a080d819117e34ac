"""The watchdog: checks state disks, Prometheus and Alertmanager, and alerts where Prometheus cannot."""

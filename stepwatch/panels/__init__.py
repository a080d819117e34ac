"""What the Training dashboard shows of a run, for those who draw it without Grafana."""

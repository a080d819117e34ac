"""The operator's side: configuration, alerts, rendering, deployment, and commands about what runs."""

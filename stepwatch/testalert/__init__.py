"""``python -m stepwatch test-alert``: one marked message to a receiver, and what came back."""

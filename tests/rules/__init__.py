"""What the alert rules do, by promtool's unit tests; what cases each rule has, `proofs.py` knows."""

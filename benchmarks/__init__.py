"""What Stepwatch costs and how fast it is, each figure beside a peer or a naive reference."""

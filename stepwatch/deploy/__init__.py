"""How the stack runs: as processes of this machine, or in containers."""

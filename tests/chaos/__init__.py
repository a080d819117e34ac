"""Random faults, drawn from a seed, in the real stack; what it promises must hold under all of them."""

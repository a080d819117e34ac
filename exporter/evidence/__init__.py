"""One archive about a run that is in trouble, to be read later, or elsewhere."""

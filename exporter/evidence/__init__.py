"""One archive about a run that is in trouble, for whoever looks at it later, or elsewhere."""

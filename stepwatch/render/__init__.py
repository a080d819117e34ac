"""Templates to files, all or nothing, checked before they replace others."""

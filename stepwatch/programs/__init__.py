"""The programs of the stack: from packages or official releases, verified."""

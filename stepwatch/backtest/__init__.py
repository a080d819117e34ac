"""Old runs judged by the rules of today: which alert would have fired, from which step to which."""

"""`stepwatch run`: a trainer as the child of a program that knows exactly how it ends."""

"""What the product does, frozen: a change of it is either a fault, or named in the commit that means it."""

"""What entries of the table of alerts are made of: the alert itself, PromQL, and operands."""

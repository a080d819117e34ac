"""What follows from the table of alerts for a configuration: rules, messages, lines and their files."""

"""The operating system: processes, ports, locks, the terminal, HTTP, and the programs that the stack runs."""

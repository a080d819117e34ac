"""The operating system: processes, ports, locks, the terminal, HTTP."""

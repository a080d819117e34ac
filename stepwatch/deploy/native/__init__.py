"""The stack as plain processes on this machine."""

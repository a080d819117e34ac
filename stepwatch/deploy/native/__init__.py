"""The stack as plain processes on this machine: brought up, looked at, taken down."""

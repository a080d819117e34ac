"""Why the stack cannot be brought up."""

from stepwatch.schema.errors import Refused


class StackError(Refused):
    """Raised when something on this machine is in the way; says what, and the fix."""


class DamagedStateError(StackError):
    """Raised when a file that an earlier `make up` wrote cannot be understood."""

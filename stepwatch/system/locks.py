"""Locks of this machine's processes, which end with the process that holds them."""

from __future__ import annotations

import errno
import fcntl

# Network folders may know no locks; single files are still replaced as a whole there.
_NO_LOCKS = {errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS}


def lock(descriptor: int, *, wait: bool = True) -> bool:
    """Lock an open file or folder until it is closed.

    Returns:
        Whether other processes are kept out, or cannot be; without ``wait`` false if another one holds it.

    Raises:
        OSError: It cannot be locked.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True

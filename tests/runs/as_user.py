"""``python -m tests.runs.as_user UID GROUP FLAGS...``: the run exporter as another user.

It changes the user only after all imports, those that sockets do late included: the interpreter may
lie in root's home.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401
import os
import sys

from exporter.runs.__main__ import main

user, group = map(int, sys.argv[1:3])
os.setgroups([group])
os.setgid(user)
os.setuid(user)
sys.exit(main(sys.argv[3:]))

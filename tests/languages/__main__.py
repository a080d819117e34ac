"""``python -m tests.languages`` brings the catalogues in step with the texts, and lists what is missing."""

import sys

from tests.languages.texts import update

sys.exit(bool(update()))

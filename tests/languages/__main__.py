"""``python -m tests.languages`` adds new texts to the catalogues, drops old ones, and lists what is missing."""

import sys

from tests.languages.texts import update

sys.exit(bool(update()))

"""``python -m tests.gpu.golden``: write the golden pages anew."""

from tests.gpu.golden import pages, path

for name, page in pages().items():
    path(name).write_text(page)

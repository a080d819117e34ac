"""``python -m tests.gpu.golden``: regenerate the golden pages."""

from tests.gpu.golden import pages, path

for name, page in pages().items():
    path(name).write_text(page)

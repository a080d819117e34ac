from tests.runs import conftest  # noqa: F401  (its profile of generated tests)

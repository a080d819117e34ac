import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwatch.schema.scalars import to_re2

NAMES = st.text("ab/.-1?", max_size=6)
GLOBS = st.text("ab/.*?[]!-1", max_size=8)


@pytest.mark.parametrize("glob", ["a[", "a]", "[]", "[!]", 'a"b', "a\\b", "a^b", "a\nb", "[z-a]", "[a[b]"])
def test_what_cannot_stand_in_a_quoted_matcher_is_refused(glob):
    with pytest.raises(ValueError, match="the pattern"):
        to_re2(glob)


@given(GLOBS, NAMES)
def test_an_expression_matches_what_the_shell_pattern_matches(glob, name):
    try:
        expression = to_re2(glob)
    except ValueError:
        return

    assert bool(re.fullmatch(expression, name)) == fnmatch.fnmatchcase(name, glob)


@given(GLOBS)
def test_an_expression_needs_no_escapes_between_quotes(glob):
    try:
        assert not set(to_re2(glob)) & {"\\", '"', "\n"}
    except ValueError:
        return

"""Whatever a file holds, it is loaded or refused in words."""

import re

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwatch.config import Config, load
from stepwatch.config.reference import defaults, keys
from stepwatch.schema.errors import ConfigError

ALL = defaults(Config).encode()
NAMES = sorted({part.removesuffix("[]") for key in keys(Config) for part in key.path.split(".")})
WORDS = st.one_of(
    st.sampled_from([*NAMES, "on", "22:22", "5s", "90d", "http://h/", "a:1", "sft-*", "a[", "~", "critical"]),
    st.text(max_size=8),
)
VALUES = st.recursive(
    st.one_of(WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.binary(max_size=4), st.dates()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
MARKS = st.sampled_from(
    [*list("[]{}:,-&*!|>'\"#%@`?\t\n ~"), "- ", ": ", "\n  ", "---\n", "<<: ", "*a", "&a "]
)


@pytest.fixture(name="path", scope="module")
def _path(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "config.yaml"


def loads_or_refuses(path, content):
    path.write_bytes(content)
    try:
        assert isinstance(load(path), Config)
    except ConfigError as error:
        for line in str(error).splitlines():
            assert line.startswith(str(path))
            assert not re.search("[\x00-\x1f\x7f-\x9f]", line)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(WORDS, MARKS), max_size=40).map("".join))
def test_any_text_that_looks_like_yaml(path, text):
    loads_or_refuses(path, text.encode("utf-8", "surrogatepass"))


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(list(Config.model_fields)), VALUES, min_size=1))
def test_any_values_below_known_keys(path, values):
    loads_or_refuses(path, yaml.safe_dump(values).encode())


@given(st.integers(0, len(ALL)), st.integers(0, 12), st.binary(max_size=6))
def test_the_shipped_file_with_a_piece_torn_out(path, start, length, patch):
    loads_or_refuses(path, ALL[:start] + patch + ALL[start + length :])

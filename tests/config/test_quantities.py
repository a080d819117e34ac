import pytest

from stepwatch.schema.scalars import Duration, Size


@pytest.mark.parametrize(
    ("text", "seconds", "written"),
    [
        ("5s", 5, "5s"),
        ("0s", 0, "0s"),
        ("250ms", 0.25, "250ms"),
        ("90s", 90, "1m30s"),
        ("1h30m", 5400, "1h30m"),
        ("12h", 43200, "12h"),
        ("36h", 129600, "36h"),
        ("90d", 7776000, "90d"),
        ("2w", 1209600, "14d"),
        ("1y", 31536000, "365d"),
    ],
)
def test_a_duration_knows_its_seconds_and_is_written_as_prometheus_reads_it(text, seconds, written):
    duration = Duration.parse(text)

    assert duration.seconds == seconds
    assert str(duration) == written


@pytest.mark.parametrize(
    "text", ["", "5", "s", "5 s", "-5s", "1.5h", "5S", "1m1h", "1m1m", "5sec", "5s\n", "200y", "9" * 30 + "d"]
)
def test_what_is_not_a_duration_is_refused(text):
    with pytest.raises(ValueError, match=r"is (not a duration|longer)"):
        Duration.parse(text)


def test_sizes_are_counted_in_units_of_1024():
    assert [(str(Size.parse(text)), Size.parse(text).bytes) for text in ("512KB", "1MB", "20GB", "2TB")] == [
        ("512KB", 512 * 1024),
        ("1MB", 1024**2),
        ("20GB", 20 * 1024**3),
        ("2TB", 2 * 1024**4),
    ]


@pytest.mark.parametrize("text", ["", "20", "20 GB", "1.5GB", "0GB", "-1GB", "20gb", "20GiB", "20B"])
def test_what_is_not_a_size_is_refused(text):
    with pytest.raises(ValueError, match="is not a size"):
        Size.parse(text)

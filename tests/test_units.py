"""Units: what people type, what they read, and that one turns back into the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain import units
from foretrain.units import (
    UnitError,
    format_bandwidth,
    format_bytes,
    format_duration,
    format_flop,
    format_money,
    parse_bandwidth,
    parse_bytes,
    parse_count,
    parse_duration,
    parse_flop,
    parse_money,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("0", 0), ("250ms", 0.25), ("40us", 4e-5), ("1.5h", 5400), ("12h30m", 45_000),
        ("2d 4h", 187_200), ("1:30:00", 5400), ("3 weeks", 1_814_400), ("1y", 365 * 86_400), (" 5 min ", 300),
        ("1,000s", 1000), ("1e3", 1000),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "soon", "-5h", "5 parsecs", "h", "1:99:00", "30m12h", "1h1h", "nan", "inf", "1e999", "5h-"]
)
def test_nonsense_durations_say_what_would_work(text: str) -> None:
    with pytest.raises(UnitError, match="12h30m"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GiB", 80 * 2**30),
        ("80GB", 80e9),
        ("25 mb", 25e6),
        ("512", 512),
        ("1.5KiB", 1536),
        ("100Gbit", 12.5e9),
    ],
)
def test_sizes(text: str, size: float) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(("text", "rate"), [("100Gbit/s", 12.5e9), ("100Gbps", 12.5e9), ("900GB/s", 900e9)])
def test_bandwidths(text: str, rate: float) -> None:
    assert parse_bandwidth(text) == rate


@pytest.mark.parametrize(
    ("text", "flop"),
    [("19.5TFLOP", 19.5e12), ("312 TFLOP/s", 312e12), ("4e18", 4e18), ("7.8 GFLOPS", 7.8e9), ("1P", 1e15)],
)
def test_flop(text: str, flop: float) -> None:
    assert parse_flop(text) == pytest.approx(flop)


@pytest.mark.parametrize(
    ("text", "usd"), [("200usd", 200), ("$1,500", 1500), ("200 USD", 200), ("8k$", 8000), ("0.45", 0.45)]
)
def test_money(text: str, usd: float) -> None:
    assert parse_money(text) == usd


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_bytes, "80 gigs"), (parse_bytes, "-1GB"), (parse_bandwidth, "100Gbit"), (parse_flop, "many"),
        (parse_money, "-5usd"), (parse_money, "200eur"), (parse_money, ""), (parse_bytes, "1,00GB"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_with_an_example(parse: object, text: str) -> None:
    assert callable(parse)
    with pytest.raises(UnitError, match="such as"):
        parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 us"), (43e-6, "43.0 us"), (0.0123, "12.3 ms"), (0.9996, "1.00 s"), (4.561, "4.56 s"),
        (59.96, "1m 00s"),
        (725, "12m 05s"), (3599.7, "1h 00m"), (12_000, "3h 20m"), (86_399, "1d 00h"), (187_200, "2d 04h"),
        (364 * 86_400, "364d 00h"), (1.8 * units.YEAR, "1.8 years"), (-90, "-1m 30s"),
    ],
)  # fmt: skip
def test_durations_as_people_read_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_other_quantities_as_people_read_them() -> None:
    assert format_bytes(12_102_220 * 4) == "46.2 MiB"
    assert format_bytes(512) == "512 B"
    assert format_bytes(80 * 2**30) == "80.0 GiB"
    assert format_bandwidth(3.352e12) == "3.35 TB/s"
    assert format_flop(777.6e9) == "778 GFLOP"
    assert format_flop(19.5e12, "FLOP/s") == "19.5 TFLOP/s"
    assert [format_money(usd) for usd in (0, 0.010875, 0.3, 1.5, 999, 5600)] == [
        "$0.00",
        "$0.01087",
        "$0.30",
        "$1.50",
        "$999.00",
        "$5,600",
    ]
    assert format_money(3.8861e-6) == "$0.000003886"  # no exponent


@given(st.floats(1e-6, 1e8))
def test_a_printed_duration_reads_back_within_its_rounding(seconds: float) -> None:
    if seconds < units.YEAR:
        assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.02)


@given(st.floats(1, 1e14))
def test_a_printed_size_reads_back_within_its_rounding(size: float) -> None:
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.01)


@given(st.floats(1, 1e20))
def test_printed_flop_read_back_within_their_rounding(flop: float) -> None:
    assert parse_flop(format_flop(flop)) == pytest.approx(flop, rel=0.01)


@given(st.floats(1e-9, 1e9))
def test_printed_money_reads_back_within_its_rounding(usd: float) -> None:
    assert parse_money(format_money(usd)) == pytest.approx(usd, rel=0.01)


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_units_add_up(days: int, hours: int, minutes: int, seconds: int) -> None:
    expected = days * 86_400 + hours * 3600 + minutes * 60 + seconds
    assert parse_duration(f"{days}d{hours}h{minutes}m{seconds}s") == expected


@given(st.text(max_size=12))
def test_any_text_is_either_read_or_refused(text: str) -> None:
    for parse in (parse_duration, parse_bytes, parse_bandwidth, parse_flop, parse_money):
        try:
            assert parse(text) >= 0
        except UnitError as error:
            assert "such as" in str(error)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("15T", 15e12),
        ("1.4 trillion", 1.4e12),
        ("300B", 3e11),
        ("100M tokens", 1e8),
        ("2,000,000", 2e6),
        ("1e9", 1e9),
    ],
)
def test_counts_as_people_write_them(text: str, count: float) -> None:
    assert parse_count(text) == pytest.approx(count)


@pytest.mark.parametrize(
    ("text", "seconds"), [("3d", 259_200), ("1d12h", 129_600), ("90 min", 5_400), ("1 day 6 hours", 108_000)]
)
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds

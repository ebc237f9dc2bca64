"""The decoder: options declared on dataclass fields, read from any mapping."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from foretrain.decoding import (
    BANDWIDTH,
    DURATION,
    FILE,
    MONEY,
    SECONDS,
    SWITCH,
    TEXT,
    choice,
    decode,
    number,
    option,
    options,
    parse_mapping,
    read_mapping,
    texts,
    values,
    whole_number,
    whole_numbers,
)
from foretrain.errors import InvalidData, InvalidRequest, MissingData


@dataclass(frozen=True, kw_only=True)
class Sizes:
    batch: int | None = option(whole_number(at_least=1), "Samples.")


@dataclass(frozen=True, kw_only=True)
class Job(Sizes):
    name: str = option(TEXT, "What it is called.", required=True)
    rate: float = option(number(above=0, at_most=10), "A rate.", default=1.0)
    wait: float | None = option(DURATION, "How long.")
    clock: float | None = option(SECONDS, "When.")
    price: float | None = option(MONEY, "How much.")
    speed: float | None = option(BANDWIDTH, "How fast.")
    kind: str = option(choice("small", "large"), "Which.", default="small")
    quick: bool = option(SWITCH, "Whether.", default=False)
    log: Path | None = option(FILE, "Where.")
    tags: tuple[str, ...] = option(texts(), "Tags.", default=())
    counts: tuple[int, ...] = option(whole_numbers(), "Counts.", default=())


def test_options_are_listed_with_those_of_the_bases_first() -> None:
    assert [each.name for each in options(Job)][:3] == ["batch", "name", "rate"]
    assert [each.name for each in options(Job) if each.is_required] == ["name"]


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("batch", 32, 32),
        ("batch", "32", 32),
        ("batch", 1e6, 1_000_000),
        ("batch", "1e6", 1_000_000),
        ("batch", "1_000", 1000),
        ("rate", 2, 2.0),
        ("rate", "2.5", 2.5),
        ("wait", "1h30m", 5400.0),
        ("wait", 90, 90.0),
        ("wait", "0", 0.0),
        ("wait", "1:30:00", 5400.0),
        ("clock", "90", 90.0),
        ("clock", 90, 90.0),
        ("price", "$1,500", 1500.0),
        ("speed", "8Gbit/s", 1e9),
        ("kind", "large", "large"),
        ("quick", True, True),
        ("log", "runs/log.csv", Path("runs/log.csv")),
        ("log", Path("log.csv"), Path("log.csv")),
        ("tags", "a, b,c", ("a", "b", "c")),
        ("tags", ["a", "b,c"], ("a", "b", "c")),
        ("counts", "1,2,4..16", (1, 2, 4, 8, 16)),
        ("counts", 3, (3,)),
        ("counts", [8, 2, 8], (8, 2)),
    ],
)
def test_values_are_typed_or_text(key: str, value: Any, read: Any) -> None:
    assert getattr(decode(Job, {"name": "x", key: value}), key) == read


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("batch", 0, r"`batch` is 0; it must be a whole number of at least 1"),
        ("batch", 2.5, r"`batch` is 2\.5; it must be a whole number"),
        ("batch", True, r"`batch` is True; it must be a whole number"),
        ("batch", "many", r"`batch` is 'many'; it must be a whole number"),
        ("batch", float("inf"), r"`batch` is inf; it must be a whole number"),
        ("rate", 0, r"`rate` is 0; it must be a number above 0 and at most 10"),
        ("rate", 11, r"`rate` is 11; it must be a number above 0 and at most 10"),
        ("rate", "nan", r"`rate` is 'nan'; it must be a number"),
        ("wait", "3", r"`wait`: '3' has no unit; write 3s, 3min, 3h, 3d or 3y"),
        ("wait", "1e3", r"`wait`: '1e3' has no unit"),
        ("wait", "soon", r"`wait`: 'soon' is not a duration such as 90s"),
        ("wait", "-1h", r"`wait`: '-1h' is negative; it must be a duration"),
        ("wait", -1, r"`wait`: -1 is out of range; it must be a duration"),
        ("wait", [1], r"`wait` is \[1\]; it must be a duration"),
        ("price", "cheap", r"`price`: 'cheap' is not an amount of money"),
        ("speed", "fast", r"`speed`: 'fast' is not a bandwidth"),
        ("kind", "larg", r"`kind` is 'larg'; it must be one of small, large; did you mean large\?"),
        ("kind", 3, r"`kind` is 3; it must be one of small, large"),
        ("quick", "yes", r"`quick` is 'yes'; it must be true or false"),
        ("log", 3, r"`log` is 3; it must be the path of a file"),
        ("tags", [1], r"`tags` is \[1\]; it must be names"),
        ("counts", "0", r"`counts` is '0'; it must be whole numbers above 0"),
        ("counts", "4..2", r"`counts`: 4\.\.2 ends before it begins; write 2\.\.4"),
        ("name", 3, r"`name` is 3; it must be text"),
        ("bach", 3, r"no field 'bach'; did you mean batch\?"),
        ("quick_", True, r"no field 'quick_'; did you mean quick"),
        ("xyz", 3, r"no field 'xyz'; known are batch, name, rate"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_field_value_and_what_works(
    key: str, value: Any, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        decode(Job, {"name": "x", key: value})


def test_none_counts_as_not_given() -> None:
    assert decode(Job, {"name": "x", "batch": None, "rate": None}) == Job(name="x")


def test_what_is_required_is_asked_for() -> None:
    with pytest.raises(InvalidRequest, match=r"`name` is required: What it is called."):
        decode(Job, {"batch": 3})


def test_errors_of_a_file_name_the_file_and_its_paths_are_relative_to_it(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    with pytest.raises(InvalidData, match=r"job\.yaml: `batch` is 0"):
        decode(Job, {"name": "x", "batch": 0}, file)
    assert decode(Job, {"name": "x", "log": "log.csv"}, file).log == tmp_path / "log.csv"
    assert decode(Job, {"name": "x", "log": "/log.csv"}, file).log == Path("/log.csv")


def test_a_key_that_is_known_elsewhere_may_be_refused_with_a_reason() -> None:
    with pytest.raises(InvalidRequest, match="only planes fly"):
        values(Job, {"wings": 2}, refuse=lambda key: "only planes fly" if key == "wings" else "")


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "key: value"), ("- a", "key: value"), ("a: [", "is not YAML"), ("a: 2024-02-31", "is not YAML")],
)
def test_files_that_are_no_mapping(text: str, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        parse_mapping(text, Path("job.yaml"), "name: x")


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"the job file '.*' does not exist; minimal example: `name: x`"):
        read_mapping(tmp_path / "job.yaml", "job file", "name: x")
    (tmp_path / "job.yaml").write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(InvalidData, match="is not text"):
        read_mapping(tmp_path / "job.yaml", "job file", "name: x")

"""Tables of timings: typed, checked, and refused where a regression would only mislead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.timing_tables import jobs, per_batch, sample

from foretrain.errors import ForetrainError, InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.learning.regression.columns import role_of
from foretrain.learning.regression.table import read_table, sample_of, table_of


def written(folder: Path, *lines: str) -> Path:
    """A CSV file."""
    file = folder / "table.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


GOOD = ("batch,seconds", "8,0.026", "16,0.042", "32,0.074", "64,0.138")

BAD: list[tuple[str, tuple[str, ...], type[ForetrainError], str]] = [
    ("constant target", ("batch,seconds", "8,1", "16,1", "32,1"), InvalidRequest,
     "the target 'seconds' is 1 in all 3 rows: there is nothing to learn"),
    ("missing value", ("batch,seconds", "8,0.026", ",0.042", "32,0.074"), InvalidData,
     r"missing values: 'batch' in 1 of 3 rows \(row 3\)"),
    ("missing target", ("batch,seconds", "8,0.026", "16,NaN", "32,"), InvalidData,
     r"'seconds' in 2 of 3 rows \(rows 3, 4\)"),
    ("two rows", ("batch,seconds", "8,0.026", "16,0.042"), MissingData,
     "2 rows of 2 different configurations are too few"),
    ("repeats only", ("batch,seconds", *["8,0.026", "16,0.042"] * 4), MissingData,
     "8 rows of 2 different configurations are too few"),
    ("text in numbers", ("batch,seconds", "8,0.026", "sixteen,0.042", "32,0.074"), InvalidData,
     r"'batch' must hold numbers, but 1 of 3 cells do not: 'sixteen' \(row 3\)"),
    ("text target", ("batch,seconds", "8,fast", "16,slow", "32,slow"), InvalidData,
     "'seconds' must hold numbers, but 3 of 3 cells do not"),
    ("target of zero", ("batch,seconds", "8,0", "16,1", "32,2"), InvalidData,
     "must be above 0"),
    ("nothing varies", ("batch,seconds", "8,1", "8,2", "8,3"), InvalidRequest,
     "no column but 'seconds' varies"),
    ("no rows", ("batch,seconds",), InvalidData, "holds a header and no rows"),
    ("ragged", ("batch,seconds", "8,1", "16,1,2"), InvalidData, "row 3: 3 cells where the header has 2"),
    ("twice", ("batch,batch", "8,1"), InvalidData, "repeated columns 'batch'"),
    ("leak", ("batch,milliseconds,seconds", *(f"{b},{1000 * s:.5f},{s}" for b, s in
              ((8, 0.0261), (16, 0.0423), (32, 0.0744), (64, 0.1382), (96, 0.2017)))), InvalidRequest,
     "'milliseconds' leaks the target 'seconds'"),
    ("leak of a throughput", ("batch,images_per_second,seconds", *(f"{b},{b / s:.3f},{s}" for b, s in
              ((8, 0.0261), (16, 0.0423), (32, 0.0744), (64, 0.1382), (96, 0.2017)))), InvalidRequest,
     "Select the feature columns with `features`: batch"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "error", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_tables(
    tmp_path: Path, lines: tuple[str, ...], error: type[ForetrainError], message: str
) -> None:
    with pytest.raises(error, match=message):
        sample_of(read_table(written(tmp_path, *lines)), "seconds")


def test_a_good_table(tmp_path: Path) -> None:
    known = sample_of(read_table(written(tmp_path, *GOOD)), "seconds")
    assert known.schema.names == ("batch",)
    assert known.measured.tolist() == [0.026, 0.042, 0.074, 0.138]
    assert known.notes == ()


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, *GOOD))
    with pytest.raises(UnknownName, match="did you mean seconds"):
        sample_of(table, "second")
    with pytest.raises(InvalidRequest, match="cannot be one of the `features`"):
        sample_of(table, "seconds", ("seconds",))
    with pytest.raises(MissingData, match="no table"):
        read_table(tmp_path / "none.csv")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(InvalidData, match="is not a CSV file in UTF-8"):
        read_table(file)


def test_rows_with_missing_values_may_be_left_out(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, *GOOD, "128,"))
    known = sample_of(table, "seconds", drop_missing=True)
    assert len(known) == 4
    assert known.notes == ("1 rows with missing values are left out",)


def test_a_leak_that_was_asked_for_is_kept_with_a_note() -> None:
    rows = [{**row, "ms": row["seconds"] * 1000} for row in per_batch(noise=0.02)]
    known = sample(rows, "batch", "ms")
    assert "ms leaks the target" in known.notes[0]


def test_a_law_without_noise_is_no_leak() -> None:
    """Batch is a setting: whole numbers of few values do not look measured."""
    rows: list[dict[str, Any]] = [{"batch": batch, "seconds": 0.002 * batch} for batch in (1, 2, 4, 8, 16)]
    assert len(sample(rows)) == 5


def test_repeats_are_their_median() -> None:
    rows = [{"batch": batch, "seconds": batch + extra} for batch in (1, 2, 4) for extra in (0, 0.1, 5)]
    known = sample(rows)
    assert known.measured.tolist() == pytest.approx([1.1, 2.1, 4.1])
    assert known.timings == 9


def test_names_of_rows_are_left_out() -> None:
    rows = [{"run": f"run-{row['batch']}", **row} for row in per_batch()]
    known = sample(rows)
    assert known.schema.names == ("batch",)
    assert known.notes == ("run is left out: 6 different texts in 6 rows",)
    with pytest.raises(InvalidRequest, match="it names rows"):
        sample(rows, "run", "batch")


def test_a_known_device_brings_its_figures() -> None:
    known = sample(jobs(), "device", "batch")
    assert known.schema.names == (
        "gflop_per_second", "memory_gb_per_second", "device_generation", "device", "batch",
    )  # fmt: skip
    assert known.schema.with_role("device") is not None


def test_names_of_drivers_and_clouds_are_the_same_device() -> None:
    rows = [
        {"gpu": name, "seconds": seconds}
        for name, seconds in (("Tesla T4", 1.0), ("t4", 1.2), ("p100-pcie", 2.0), ("k80", 3.0))
    ]
    known = sample(rows)
    assert sorted(known.measured.tolist()) == pytest.approx([1.1, 2.0, 3.0])


@pytest.mark.parametrize(
    ("column", "role"),
    [
        ("batchsize", "batch"),
        ("Batch Size", "batch"),
        ("ngpu", "gpus"),
        ("network", "model"),
        ("colour", None),
    ],
)
def test_roles_by_name(column: str, role: str | None) -> None:
    assert role_of(column) == role


def test_a_row_is_encoded_by_role() -> None:
    schema = sample(per_batch()).schema
    assert schema.encode([{"batch_size": 128}]).tolist() == [[128.0]]
    assert schema.outside(schema.encode([{"batch": 128}])[0]) == ("batch 128 (timed: 8 to 64)",)
    with pytest.raises(InvalidRequest, match="batch is 'many', not a number"):
        schema.encode([{"batch": "many"}])


def test_no_rows_at_all() -> None:
    with pytest.raises(MissingData, match="there are no rows"):
        table_of([])

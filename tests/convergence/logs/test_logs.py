"""Logs of every form say the same; malformed ones are refused with their row and column."""

import json
import struct
from pathlib import Path

import pytest

from foretrain.convergence.curves import MetricDirection
from foretrain.convergence.logs import read_history, read_log
from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName

LOSSES = [3.0, 2.0, 1.5, 1.25]


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(step: int, tag: str, value: float, as_tensor: bool) -> bytes:
    if as_tensor:
        scalar = message(8, b"\x08\x01" + message(4, struct.pack("<f", value)))
    else:
        scalar = b"\x15" + struct.pack("<f", value)
    summary = message(5, message(1, message(1, tag.encode()) + scalar))
    body = b"\x09" + struct.pack("<d", 1.7e9) + b"\x10" + varint(step) + summary
    return struct.pack("<Q", len(body)) + b"crc." + body + b"crc."


def write(folder: Path, form: str) -> Path:
    rows = [{"step": 100 * (index + 1), "loss": loss} for index, loss in enumerate(LOSSES)]
    if form == "csv":
        path = folder / "log.csv"
        path.write_text("step,run,loss\n" + "".join(f"{row['step']},a,{row['loss']}\n" for row in rows))
    elif form == "jsonl":
        path = folder / "log.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    elif form == "trainer":
        path = folder / "trainer_state.json"
        path.write_text(
            json.dumps({"max_steps": 1000, "log_history": [*rows, {"step": 400, "eval_loss": 1.0}]})
        )
    elif form == "keras":
        path = folder / "log.csv"
        path.write_text("epoch,accuracy,loss\n" + "".join(f"{i},0.5,{v}\n" for i, v in enumerate(LOSSES)))
    else:
        path = folder / "events.out.tfevents.1.host"
        records = [event(row["step"], "loss", row["loss"], form == "tensor") for row in rows]  # type: ignore[arg-type]
        path.write_bytes(b"".join(records) + records[0][:20])
    return path


@pytest.mark.parametrize("form", ["csv", "jsonl", "trainer", "scalar", "tensor"])
def test_every_form_gives_the_same_curve(tmp_path: Path, form: str) -> None:
    curve = read_log(write(tmp_path, form)).curve("loss")
    assert curve.steps.tolist() == [100, 200, 300, 400]
    assert curve.values.tolist() == LOSSES
    assert curve.planned_steps == (1000 if form == "trainer" else None)


def test_keras_counts_epochs_from_zero(tmp_path: Path) -> None:
    log = read_log(write(tmp_path, "keras"))
    assert log.unit == "epoch"
    assert log.curve("loss").steps.tolist() == [1, 2, 3, 4]


def test_steps_per_epoch_where_both_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,epoch,loss\n100,0.5,3\n200,1,2\n")
    assert read_log(path).steps_per_epoch == 200


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.csv", "", "a.csv: the file is empty"),
        ("a.csv", "step,loss\n1,2\n2,low\n", "a.csv, row 3: column 'loss' has 'low', which is not a number"),
        ("a.csv", "step,loss\n1\n", "a.csv, row 2: 1 cells, but the header has 2"),
        ("a.csv", "time,loss\n1,2\n", "no column counts steps; name one step or epoch"),
        ("a.jsonl", '{"step": 1}\n{', "a.jsonl, row 2: not JSON"),
        ("a.jsonl", "3\n", "a.jsonl, row 1: an object was expected"),
        ("a.json", "{}", "a.json: no log_history"),
        ("x.tfevents", "not a record at all", "its first record does not end"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InvalidData, match=sentence):
        read_log(path)


def test_unknown_metrics_list_the_columns(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"no metric 'los'; did you mean loss\? Columns of log.jsonl: loss"):
        read_log(write(tmp_path, "jsonl")).curve("los")


def test_a_column_of_nan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n1,nan\n2,nan\n")
    with pytest.raises(InvalidData, match="has no number in any of its 2 rows"):
        read_log(path).curve("loss")


def test_missing_and_unknown_files(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="no log"):
        read_log(tmp_path / "none.csv")
    other = tmp_path / "log.txt"
    other.write_text("x")
    with pytest.raises(InvalidRequest, match="no known form of log"):
        read_log(other)


def test_a_history_is_grouped_by_folder_and_says_what_it_left_out(tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        write(tmp_path / place, "csv")
    (tmp_path / "short.csv").write_text("step,loss\n1,2\n")
    curves, left_out = read_history(tmp_path, "loss", MetricDirection.DOWN)
    assert [(curve.group, curve.planned_steps) for curve in curves] == [("a", 400), ("b", 400)]
    assert left_out == ("short.csv: only 1 points",)

"""Logs as trackers and spreadsheets export them: runs in names, other separators, one value a row."""

import json
from pathlib import Path

import pytest
from tests.convergence.logs.test_logs import event

from foretrain.convergence.logs import read_log
from foretrain.errors import InvalidData, InvalidRequest, UnknownName

STEPS = [10, 20, 30]
LOSSES = [2.5, 1.5, 1.25]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def wandb(*runs: str) -> str:
    header = ["Step"]
    for run in runs:
        header += [
            f"{run} - {name}" for name in ("train/loss", "train/loss__MIN", "train/loss__MAX", "_step")
        ]
    points = zip(STEPS, LOSSES, strict=True)
    rows = [[str(step), *[str(loss), str(loss), str(loss), str(step)] * len(runs)] for step, loss in points]
    return "\n".join(",".join(f'"{cell}"' for cell in row) for row in [header, *rows])


@pytest.mark.parametrize("metric", ["smooth-sun - 3 - train/loss", "train/loss", "loss"])
def test_a_wandb_export_of_one_run(tmp_path: Path, metric: str) -> None:
    log = read_log(write(tmp_path / "wandb_export.csv", wandb("smooth-sun - 3")))
    assert log.metrics == ("smooth-sun - 3 - train/loss",)
    curve = log.curve(metric)
    assert (curve.steps.tolist(), curve.values.tolist()) == (STEPS, LOSSES)


def test_a_wandb_export_of_two_runs_asks_for_one(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "wandb_export.csv", wandb("a", "b")))
    assert log.metrics == ("a - train/loss", "b - train/loss")
    with pytest.raises(
        InvalidRequest, match=r"in 2 columns of wandb_export.csv; name one whole: a - train/loss, b -"
    ):
        log.curve("train/loss")
    assert log.curve("b - train/loss").values.tolist() == LOSSES


def test_names_without_runs_keep_their_dashes(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "log.csv", "step,train - loss,valid - loss\n1,2,3\n"))
    assert log.metrics == ("train - loss", "valid - loss")


@pytest.mark.parametrize(
    "text",
    [
        "step;loss\n10;2,5\n20;1,5\n30;1,25\n",
        "step;loss\n10;2.5\n20;1.5\n30;1.25\n",
        "step\tloss\n10\t2,5\n20\t1,5\n30\t1,25\n",
        "\ufeffstep;loss;note\n10;2,5e0;a\n20;15,0E-1;b\n30;1,25;c\n",
    ],
)
def test_semicolons_and_decimal_commas(tmp_path: Path, text: str) -> None:
    curve = read_log(write(tmp_path / "log.csv", text)).curve("loss")
    assert (curve.steps.tolist(), curve.values.tolist()) == (STEPS, LOSSES)


def test_points_between_thousands_where_commas_are_decimal(tmp_path: Path) -> None:
    curve = read_log(write(tmp_path / "log.csv", "step;ppl\n1.000;1.234,5\n2.000;999,5\n")).curve("ppl")
    assert (curve.steps.tolist(), curve.values.tolist()) == ([1000, 2000], [1234.5, 999.5])


def test_keras_with_semicolons(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "training.log", "epoch;loss\n0;2.5\n1;1.5\n"))
    assert log.curve("loss").steps.tolist() == [1, 2]


def mlflow_rows(*runs: str) -> list[dict[str, object]]:
    return [
        {"run_id": run, "key": "val_loss", "value": loss, "timestamp": 1_700_000_000_000, "step": step}
        for run in runs
        for step, loss in zip(STEPS, LOSSES, strict=True)
    ]


def test_mlflow_exports_of_one_metric_a_row(tmp_path: Path) -> None:
    rows = mlflow_rows("3f2a")
    lines = [list(rows[0]), *([str(cell) for cell in row.values()] for row in rows)]
    text = "\n".join(",".join(line) for line in lines)
    forms = (
        write(tmp_path / "metrics.csv", text),
        write(tmp_path / "history.json", json.dumps({"metrics": rows})),
    )
    for path in forms:
        log = read_log(path)
        assert log.metrics == ("val_loss",)
        assert log.curve("val_loss").values.tolist() == LOSSES


def test_mlflow_runs_are_kept_apart(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "history.json", json.dumps({"metrics": mlflow_rows("a", "b")})))
    assert log.metrics == ("a - val_loss", "b - val_loss")


def test_the_folder_of_an_mlflow_run(tmp_path: Path) -> None:
    run = tmp_path / "mlruns" / "0" / "3f2a"
    lines = [f"1700000000000 {loss} {step}" for step, loss in zip(STEPS, LOSSES, strict=True)]
    write(run / "metrics" / "train" / "loss", "\n".join(lines) + "\n")
    write(run / "metrics" / "lr", "1700000000000 0.1 10\n")
    write(run / "params" / "lr", "0.1")
    log = read_log(run)
    assert log.metrics == ("lr", "train/loss")
    with pytest.raises(InvalidRequest, match="a folder with 0 logs"):
        read_log(tmp_path / "mlruns")
    assert log.curve("loss").values.tolist() == LOSSES
    assert read_log(run / "metrics" / "train" / "loss").curve("train/loss").values.tolist() == LOSSES


def test_a_list_of_rows_in_json(tmp_path: Path) -> None:
    rows = [{"_step": step, "loss": loss} for step, loss in zip(STEPS, LOSSES, strict=True)]
    assert read_log(write(tmp_path / "history.json", json.dumps(rows))).curve("loss").steps.tolist() == STEPS


def test_event_files_of_one_folder_are_one_log(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.host").write_bytes(event(10, "train/loss", 2.5, False))
    (tmp_path / "events.out.tfevents.2.host").write_bytes(
        event(20, "train/loss", 1.5, False) + event(20, "eval/loss", 1.75, False)
    )
    log = read_log(tmp_path)
    assert log.curve("train/loss").values.tolist() == [2.5, 1.5]
    assert log.curve("eval/loss").steps.tolist() == [20]


def test_errors_say_what_was_found(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidData, match="found model, seed"):
        read_log(write(tmp_path / "config.json", '{"model": 1, "seed": 2}'))
    with pytest.raises(UnknownName, match=r"Columns of wandb.csv: a - train/loss"):
        read_log(write(tmp_path / "wandb.csv", wandb("a"))).curve("accuracy")
    with pytest.raises(InvalidRequest, match="a folder with 0 logs; name the file"):
        read_log(empty)
    with pytest.raises(InvalidData, match=r"no column counts steps.*found: Wall time, Value"):
        read_log(write(tmp_path / "board.csv", "Wall time,Value\n1,2\n"))

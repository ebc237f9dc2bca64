"""`foretrain models` and `foretrain links`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from foretrain.facts.links import links
from foretrain.facts.sheets import quantities, sources
from foretrain.workloads.readers import FORMS
from foretrain.workloads.zoo import zoo

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
Run = Callable[..., CompletedProcess[str]]


def test_models_lists_the_whole_zoo_and_every_form(run_here: Run) -> None:
    listed = json.loads(run_here("models", "--json").stdout)
    assert [model["name"] for model in listed["models"]] == [entry.name for entry in zoo().values()]
    assert [form["form"] for form in listed["forms"]] == list(FORMS)
    (resnet,) = [model for model in listed["models"] if model["name"] == "resnet50"]
    assert (resnet["parameters"], resnet["task"]) == (25_557_032, "image-classification")
    assert resnet["defaults"]["image_size"] == 224


def test_models_searches_names_families_and_tasks(run_here: Run) -> None:
    lines = run_here("models", "--search", "BERT-la").stdout.splitlines()
    assert lines[0].split() == ["model", "parameters", "task", "default", "input"]
    assert lines[1].split() == "bert-large 335,174,458 masked language modelling 512 tokens".split()
    by_task = json.loads(run_here("models", "--search", "masked language", "--json").stdout)["models"]
    assert {"bert-base", "bert-large"} <= {model["name"] for model in by_task}


def test_a_search_without_a_result_is_an_error(run_here: Run) -> None:
    run = run_here("models", "--search", "resnett50")
    assert run.returncode == 2
    assert "did you mean resnet50" in run.stderr


def test_links_have_rates_with_sources_that_resolve(run_here: Run) -> None:
    listed = json.loads(run_here("links", "--json").stdout)
    assert {link["id"] for link in listed} == {link.id for link in links().values()}
    for link in listed:
        for quantity, fact in link["facts"].items():
            assert fact["source"] in sources(), (link["id"], quantity)
            assert fact["unit"] == quantities()[quantity].unit


def test_links_of_one_kind_from_slow_to_fast(run_here: Run) -> None:
    lines = run_here("links", "--kind", "pcie").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["pcie3-x8", "pcie2-x16", "pcie3-x16"]
    (row,) = [line.split() for line in lines if line.startswith("pcie3-x16")]
    assert row[2:4] == ["15.8", "GB/s"]


def test_an_unknown_kind_of_link_names_the_kinds(run_here: Run) -> None:
    run = run_here("links", "--kind", "nvlnk")
    assert run.returncode == 2
    assert "did you mean nvlink" in run.stderr


def test_a_topology_is_explained(run_here: Run) -> None:
    file = str(EXAMPLES / "nvlink-pairs-topology.txt")
    text = run_here("links", "--topology", file, "--device", "rtx3090").stdout
    assert "GPU0 GPU1; GPU2 GPU3" in text
    assert "use --links two-bridges" in text
    answer = json.loads(run_here("links", "--topology", file, "--json").stdout)
    assert [tier["path"] for tier in answer["tiers"]] == ["NV4", "SYS"]
    assert answer["links"] is None
    assert "give the file too" in run_here("links", "--device", "rtx3090").stderr
    missing = run_here("links", "--topology", "nowhere.txt")
    assert "nvidia-smi topo -m > nowhere.txt" in missing.stderr

"""`foretrain resources`, `pair` and `learn resources` on the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PS = ("--on", "t4:1x2", "--network", "ethernet-1g", "--strategy", "ps-sync", "--batch", "64")


def test_four_resources_in_text(run_here: Callable[..., Any]) -> None:
    done = run_here("resources", "cifar-resnet20", *PS)
    assert done.returncode == 0
    for word in ("gpu memory", "transmit, ethernet-1g", "BIB", "Method: timeline"):
        assert word in done.stdout


def test_json_and_what_if(run_here: Callable[..., Any]) -> None:
    done = run_here(
        "resources", "cifar-resnet20", *PS, "--what-if", "gpu=v100-sxm2-16gb", "--what-if", "batch=128,256",
        "--what-if", "servers=2", "--what-if", "workers=4", "--json",
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert list(answer["resources"]) == ["gpu", "gpu_memory", "transmit", "receive"]
    assert [each["change"] for each in answer["what_if"]] == [
        "gpu=v100-sxm2-16gb", "batch=128", "batch=256", "servers=2", "workers=4",
    ]  # fmt: skip
    steps = [each["step_seconds"]["p50"] for each in answer["what_if"]]
    assert steps[0] < answer["step_seconds"]["p50"] < steps[1] < steps[2]
    assert (
        answer["what_if"][3]["resources"]["transmit"]["burst_amount"]["p50"]
        > (answer["resources"]["transmit"]["burst_amount"]["p50"])
    )


def test_the_table_of_changes(run_here: Callable[..., Any]) -> None:
    done = run_here("resources", "cifar-resnet20", *PS, "--what-if", "batch=128")
    assert "as asked" in done.stdout
    assert "batch=128" in done.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("colour=red", "write KEY=VALUE"),
        ("gpu", "write KEY=VALUE"),
        ("servers=2", "needs a strategy with parameter servers"),
        ("workers=many", "whole number"),
        ("gpu=nosuchgpu", "nosuchgpu"),
    ],
)
def test_changes_that_make_no_sense(run_here: Callable[..., Any], change: str, message: str) -> None:
    done = run_here("resources", "mnist-cnn", "--on", "t4", "--what-if", change)
    assert done.returncode == 2
    assert message in done.stderr


def test_plots(run_here: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "bursts.svg"
    assert (
        run_here("resources", "cifar-resnet20", *PS, "--what-if", "batch=128", "--plot", str(file)).returncode
        == 0
    )
    assert "<svg" in file.read_text(encoding="utf-8")
    both = tmp_path / "pair.png"
    done = run_here("pair", "mnist-cnn", "cifar-resnet20", "--on", "t4", "--plot", str(both))
    assert done.returncode == 0
    assert both.read_bytes().startswith(b"\x89PNG")
    assert run_here("resources", "mnist-cnn", "--on", "t4", "--plot", "bursts.txt").returncode == 2


def test_a_pair_on_one_gpu_takes_turns(run_here: Callable[..., Any]) -> None:
    done = run_here("pair", "cifar-resnet20", "cifar-resnet20", "--on", "t4", "--batch", "256", "--json")
    answer = json.loads(done.stdout)
    assert [job["slowdown"] for job in answer["jobs"]] == pytest.approx([2.0, 2.0], rel=0.05)
    assert answer["share"] is False
    assert "do not share" in answer["verdict"]


def test_a_pair_of_jobs_that_wait_for_their_network_shares(run_here: Callable[..., Any]) -> None:
    done = run_here("pair", "cifar-resnet20", "densenet40-k12", *PS)
    assert done.returncode == 0
    assert "Verdict: share" in done.stdout


def test_pairs_need_two_models_that_fit(run_here: Callable[..., Any]) -> None:
    assert run_here("pair", "mnist-cnn", "--on", "t4").returncode == 2
    assert "one each" in run_here("pair", "mnist-cnn", "mnist-cnn", "--on", "t4", "--batch", "1,2,4").stderr
    done = run_here("pair", "gpt2", "gpt2", "--on", "t4", "--batch", "8", "--json")
    assert json.loads(done.stdout)["memory"]["fits"] is False


def test_learning_without_runs(run_here: Callable[..., Any], tmp_path: Path) -> None:
    done = run_here("learn", "resources")
    assert done.returncode == 3
    assert "no stored runs" in done.stderr
    done = run_here("learn", "resources", "--out", str(tmp_path / "mine.txt"))
    assert done.returncode == 2
    assert "end the name in .json" in done.stderr

"""`foretrain predict --on cluster.yaml`: equal nodes as plain hardware, unlike ones with their split."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.support.convolving import model_file

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def model(tmp_path: Path) -> str:
    return f"{model_file(tmp_path)}:convolving"


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        file = tmp_path / "cluster.yaml"
        file.write_text(text)
        return str(file)

    return write


UNLIKE = "nodes: [{device: v100-sxm2-16gb}, {device: k80, count: 2}]\nnetwork: infiniband-edr"


def test_a_uniform_file_is_the_same_as_its_hardware_in_a_word(
    run_here: Run, model: str, written: Callable[[str], str]
) -> None:
    file = written(
        "nodes: [{device: rtx2080ti, devices: 4, count: 2, links: pcie3-x8}]\nnetwork: ethernet-10g"
    )
    job = ("predict", model, "--global-batch", "256", "--cost-model", "roofline", "--json")
    from_file = run_here(*job, "--on", file)
    in_a_word = run_here(*job, "--on", "rtx2080ti:4x2", "--network", "ethernet-10g", "--links", "pcie3-x8")
    assert from_file.returncode == 0, from_file.stderr
    assert json.loads(from_file.stdout) == json.loads(in_a_word.stdout)
    other = run_here(*job, "--on", file, "--network", "ethernet-1g")
    assert json.loads(other.stdout)["step"] != json.loads(from_file.stdout)["step"]


def test_json_has_the_contracts_keys_and_the_split(
    run_here: Run, model: str, written: Callable[[str], str]
) -> None:
    evaluation = run_here("predict", model, "--on", written(UNLIKE), "--global-batch", "128", "--json")
    assert evaluation.returncode == 0, evaluation.stderr
    found: dict[str, Any] = json.loads(evaluation.stdout)
    assert set(found) >= {
        "workload", "hardware", "knowledge", "step", "throughput", "memory", "bottleneck", "coverage",
        "sources", "split",
    }  # fmt: skip
    step, split = found["step"], found["split"]
    assert sum(part["seconds"] for part in step["parts"]) == pytest.approx(step["seconds"]["p50"], rel=1e-9)
    assert step["seconds"]["p10"] < step["seconds"]["p50"] < step["seconds"]["p90"]
    assert sum(sum(share["batches"]) for share in split["shares"]) == split["global_batch"] == 128
    assert [group["name"] for group in found["hardware"]["groups"]] == ["v100-sxm2-16gb", "k80:1x2"]
    assert found["hardware"]["devices"] == 3
    assert found["throughput"]["samples_per_second"] == pytest.approx(128 / step["seconds"]["p50"])
    assert found["memory"]["fits"] is True
    assert split["verdict"]


def test_the_text_shows_every_group_and_the_verdict(
    run_here: Run, model: str, written: Callable[[str], str]
) -> None:
    job = ("predict", model, "--on", written(UNLIKE), "--global-batch", "128", "--samples", "1280")
    shown = run_here(*job)
    assert shown.returncode == 0, shown.stderr
    assert "global batch 128 on 3 devices of different kinds" in shown.stdout
    assert "Split: " in shown.stdout
    assert "batch per device" in shown.stdout
    assert "k80:1x2" in shown.stdout
    assert "even split over all nodes" in shown.stdout
    assert "Epoch of 1,280 samples: 10 steps" in shown.stdout
    assert "even split over all nodes  " not in run_here(*job, "--no-advice").stdout


def test_without_a_global_batch_each_device_counts_with_its_own(
    run_here: Run, model: str, written: Callable[[str], str]
) -> None:
    evaluation = run_here("predict", model, "--on", written(UNLIKE), "--batch", "16", "--json")
    assert json.loads(evaluation.stdout)["split"]["global_batch"] == 48


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--strategy", "tp=2,pp=1,dp=1"), "a heterogeneous cluster supports strategy ddp only"),
        (("--strategy", "fsdp"), "strategy fsdp requires equal nodes"),
        (("--micro-batches", "2"), "--micro-batches requires equal batches"),
        (("--links", "pcie3-x16"), "at each entry of the cluster file"),
        (("--min-batch", "0"), "at least 1"),
    ],
)
def test_what_requires_equal_nodes_is_refused(
    run_here: Run, model: str, written: Callable[[str], str], options: tuple[str, ...], message: str
) -> None:
    evaluation = run_here("predict", model, "--on", written(UNLIKE), "--global-batch", "64", *options)
    assert evaluation.returncode == 2
    assert message in evaluation.stderr


def test_a_minimum_batch_is_for_heterogeneous_clusters(run_here: Run, model: str) -> None:
    evaluation = run_here("predict", model, "--on", "t4:2", "--min-batch", "4")
    assert evaluation.returncode == 2
    assert "--min-batch is for heterogeneous clusters" in evaluation.stderr


def test_a_batch_too_small_is_an_answer_and_fails_a_check(
    run_here: Run, model: str, written: Callable[[str], str]
) -> None:
    job = ("predict", model, "--on", written(UNLIKE), "--global-batch", "4", "--min-batch", "8")
    run = run_here(*job)
    assert run.returncode == 0
    assert "infeasible: the smallest node needs 8 samples" in run.stdout
    assert run_here(*job, "--check").returncode == 1
    assert json.loads(run_here(*job, "--json").stdout)["infeasible"]["available"] == "4"


def test_errors_of_the_file_name_the_key(run_here: Run, model: str, written: Callable[[str], str]) -> None:
    evaluation = run_here("predict", model, "--on", written("nodes: [{device: rtx2080to}]"))
    assert evaluation.returncode == 2
    assert "nodes, entry 1: no device 'rtx2080to'; did you mean" in evaluation.stderr

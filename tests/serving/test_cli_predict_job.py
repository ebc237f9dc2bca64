"""The job of `foretrain predict`: the JSON contract, the text, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]
STEP = ("predict", "mnist-cnn", "--on", "t4", "--batch", "8", "--cost-model", "roofline", "--no-advice")
RENTED = ("predict", "mnist-cnn", "--on", "aws:g4dn.xlarge", "--batch", "8", "--cost-model", "roofline")


def found(run: Run, *arguments: str) -> dict[str, Any]:
    evaluation = run(*arguments, "--json")
    assert evaluation.returncode == 0, evaluation.stderr
    answer: dict[str, Any] = json.loads(evaluation.stdout)
    return answer


def test_the_contract(run_here: Run) -> None:
    answer = found(run_here, *RENTED, "--no-advice", "--samples", "80", "--epochs", "100")
    job = answer["job"]
    assert job["steps"] == 1000
    for quantity in ("seconds", "usd"):
        assert set(job[quantity]) == {"p10", "p50", "p90"}
    assert job["kwh"] > 0
    assert job["co2_kg"] > 0
    assert sum(part["seconds"] for part in job["parts"]) == pytest.approx(job["seconds"]["p50"])
    training = next(part for part in job["parts"] if part["name"] == "training")
    assert training["seconds"] == pytest.approx(1000 * answer["step"]["seconds"]["p50"])
    assert answer["epoch"]["steps"] == 10


def test_samples_alone_are_an_epoch(run_here: Run) -> None:
    answer = found(run_here, *STEP, "--samples", "80")
    assert "epoch" in answer
    assert "job" not in answer


def test_options_reach_the_job(run_here: Run) -> None:
    job = found(
        run_here, *STEP, "--steps", "1000000", "--startup", "10m", "--checkpoint-every", "1h",
        "--checkpoint-rate", "1GB/s", "--interruptions-per-day", "0", "--usd-per-hour", "$3.6",
        "--eval-samples", "80", "--eval-every", "1000", "--region", "FRA",
    )["job"]  # fmt: skip
    parts = {part["name"]: part["seconds"] for part in job["parts"]}
    assert parts["start-up"] == 600
    assert set(parts) == {"start-up", "training", "evaluation", "checkpoints"}
    assert job["usd"]["p50"] == pytest.approx(job["seconds"]["p50"] / 1000)
    assert job["co2_kg"] > 0


def test_spot_is_cheaper_and_interrupted(run_here: Run) -> None:
    asked = (*RENTED, "--no-advice", "--steps", "100000000")
    on_demand, spot = found(run_here, *asked)["job"], found(run_here, *asked, "--spot")["job"]
    assert spot["usd"]["p50"] < on_demand["usd"]["p50"]
    assert spot["interruptions"] > on_demand["interruptions"]
    assert spot["seconds"]["p50"] > on_demand["seconds"]["p50"]


def test_text(run_here: Run) -> None:
    printed = run_here(*RENTED, "--no-advice", "--steps", "1000000", "--spot").stdout
    for line in ("Job of 1,000,000 steps: ", "  cost: $", "  energy: ", "  least certain: ", "checkpoints: "):
        assert line in printed
    unpriced = run_here(*STEP, "--steps", "1000").stdout
    assert "cost: not known" in unpriced
    assert "price unknown" in unpriced


def test_a_target_and_a_log(run_here: Run, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    rows = [f"{k},{10 / math.sqrt(k):.9f}" for k in range(10, 401, 10)]
    log.write_text("\n".join(["step,loss", *rows]) + "\n")
    job = found(run_here, *STEP, "--target", "loss=0.4", "--log", str(log))["job"]
    assert job["steps"] == pytest.approx(625, rel=0.1)
    assert job["steps_interval"]["p90"] >= job["steps"]


def test_batch_size_counts(run_here: Run) -> None:
    epochs = (*STEP, "--samples", "80", "--epochs", "100", "--reference-batch", "2")
    equal = found(run_here, *epochs)["job"]
    assert equal["steps"] == 1000
    assert any("equal epochs" in note for note in equal["notes"])
    # (1 + 8/4) / (1 + 2/4) = 2
    assert found(run_here, *epochs, "--critical-batch", "4")["job"]["steps"] == 2000
    points = [f"--epochs-at={batch}={count}" for batch, count in ((2, 100), (4, 110), (16, 170))]
    job = found(run_here, *STEP, "--samples", "80", *points)["job"]
    assert job["steps"] == pytest.approx(1300, rel=0.05)
    assert job["steps_interval"]["p10"] < job["steps"] < job["steps_interval"]["p90"]
    assert "epochs to target by the epochs at 3 batch sizes" in {one["source"] for one in job["uncertainty"]}


def test_earlier_logs_are_read(run_here: Run, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    for index in range(4):
        rows = [f"{k},{(10 + index / 5) / math.sqrt(k):.9f}" for k in range(10, 901, 10)]
        (runs / f"{index}.csv").write_text("\n".join(["step,loss", *rows]) + "\n")
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["step,loss", *(f"{k},{10 / math.sqrt(k):.9f}" for k in range(10, 201, 10))]))
    target = ("--target", "loss=0.4", "--log", str(log))
    with_history = found(run_here, *STEP, *target, "--history", str(runs))["job"]["steps_interval"]
    assert with_history != found(run_here, *STEP, *target)["job"]["steps_interval"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--epochs", "3"), "--samples"),
        (("--steps", "3", "--epochs", "3", "--samples", "9"), "once"),
        (("--target", "loss=0.4"), "go together"),
        (("--planned-steps", "4"), "--log"),
        (("--history", "."), "--log"),
        (("--steps", "3", "--critical-batch", "4"), "--reference-batch"),
        (("--samples", "9", "--epochs-at", "4:3"), "BATCH=EPOCHS"),
        (("--spot",), "length is known"),
        (("--steps", "0"), "at least 1"),
        (("--steps", "5", "--checkpoint-rate", "fast"), "bandwidth"),
        (("--steps", "5", "--region", "atlantis"), "atlantis"),
    ],
)
def test_refusals(run_here: Run, arguments: tuple[str, ...], message: str) -> None:
    evaluation = run_here(*STEP, *arguments)
    assert evaluation.returncode == 2
    assert message in evaluation.stderr


MIXED = "nodes: [{device: v100-sxm2-16gb}, {device: k80, count: 2}]\nnetwork: infiniband-edr"


def test_a_job_on_a_heterogeneous_cluster(run_here: Run, tmp_path: Path) -> None:
    file = tmp_path / "mixed.yaml"
    file.write_text(MIXED)
    asked = ("predict", "mnist-cnn", "--on", str(file), "--cost-model", "roofline", "--no-advice")
    length = ("--samples", "60000", "--epochs", "200", "--eval-samples", "10000", "--usd-per-hour", "3.6")
    answer = found(run_here, *asked, "--global-batch", "4096", *length)
    job, step = answer["job"], answer["step"]["seconds"]
    assert job["steps"] == 200 * 15  # ceil(60000 / 4096)
    assert sum(part["seconds"] for part in job["parts"]) == pytest.approx(job["seconds"]["p50"])
    parts = {part["name"]: part["seconds"] for part in job["parts"]}
    assert parts["training"] == pytest.approx(job["steps"] * step["p50"])
    # 200 evaluations of ceil(10000 / 4096) forward passes
    assert parts["evaluation"] == pytest.approx(600 * answer["step"]["forward_seconds"])
    assert job["usd"]["p50"] == pytest.approx(job["seconds"]["p50"] / 1000)
    printed = run_here(*asked, "--global-batch", "4096", *length).stdout
    assert "Job of 3,000 steps" in printed
    assert "work done again" in printed


def test_nodes_left_out_cost_nothing(run_here: Run, tmp_path: Path) -> None:
    file = tmp_path / "mixed.yaml"
    file.write_text(MIXED)
    few = found(
        run_here, "predict", "mnist-cnn", "--on", str(file), "--cost-model", "roofline", "--no-advice",
        "--global-batch", "8", "--steps", "1000",
    )  # fmt: skip
    assert few["split"]["excluded"]
    one = found(
        run_here, "predict", "mnist-cnn", "--on", "v100-sxm2-16gb", "--cost-model", "roofline", "--no-advice",
        "--batch", "8", "--steps", "1000",
    )  # fmt: skip
    assert few["job"]["energy"]["watts"] == pytest.approx(one["job"]["energy"]["watts"])
    assert few["job"]["saving"]["bytes"] == one["job"]["saving"]["bytes"]
    assert any("2 of 3 nodes do not train" in note for note in few["job"]["notes"])

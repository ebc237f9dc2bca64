"""`foretrain predict` on many devices: the JSON contract, the text, the timeline, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.support.trace_events import check_trace

from foretrain.facts.hardware import hardware
from foretrain.prediction.collectives.network import network_of
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.serving.requests.predicting import PredictRequest

PAIRS = Path(__file__).parents[2] / "docs" / "examples" / "nvlink-pairs-topology.txt"
Run = Callable[..., CompletedProcess[str]]
JOB = ("predict", "mnist-cnn", "--on", "t4:4", "--batch", "8")
QUICK = (*JOB, "--no-advice")


@pytest.mark.parametrize(
    "strategy",
    ["ddp", "dp", "fsdp", "hsdp", "zero1", "zero2", "zero3", "pp=4", "pp=2,dp=2,zero=1", "dp=4,compress=fp16",
     "ps-sync", "ps-async", "ps-ksync=2", "ps-kasync=2", "auto"],
)  # fmt: skip
def test_every_strategy_answers_with_the_keys_of_the_contract(
    predicted: Callable[..., dict[str, Any]], strategy: str
) -> None:
    found = predicted(*QUICK, "--strategy", strategy)
    assert set(found) >= {
        "workload", "hardware", "knowledge", "step", "throughput", "memory", "bottleneck", "parallelism",
        "coverage", "sources", "notes",
    }  # fmt: skip
    step = found["step"]
    assert set(step) >= {
        "seconds", "forward_seconds", "backward_seconds", "optimizer_seconds", "input_seconds",
        "communication_seconds", "exposed_communication_seconds", "parts",
    }  # fmt: skip
    assert sum(part["seconds"] for part in step["parts"]) == pytest.approx(step["seconds"]["p50"], rel=1e-9)
    assert step["seconds"]["p10"] <= step["seconds"]["p50"] <= step["seconds"]["p90"]
    assert step["communication_seconds"] > 0
    assert set(found["throughput"]) == {"samples_per_second", "tokens_per_second", "mfu"}
    assert found["memory"]["fits"] is True
    assert found["memory"]["largest_batch"] > 8
    assert found["bottleneck"]["kind"] in ("gpu", "network", "input", "launch", "memory")
    assert found["hardware"] | {"devices_per_node": 4, "nodes": 1} == found["hardware"]
    report = found["parallelism"]
    assert set(report) >= {
        "strategy", "degrees", "replicas", "global_batch", "micro_batches", "network", "coordination_ratio",
        "moved_bytes", "bubble_seconds", "utilisation", "exchanges", "stages", "staleness", "scaling",
        "runners_up",
    }  # fmt: skip
    assert report["exchanges"]
    assert report["scaling"] is None  # no advice was asked for


def test_advice_brings_what_ifs_and_a_curve(predicted: Callable[..., dict[str, Any]]) -> None:
    found = predicted(*JOB)
    assert {"2x GPUs", "half the GPUs", "2x batch"} <= {
        each["change"] for each in found["bottleneck"]["advice"]
    }
    curve = found["parallelism"]["scaling"]
    assert [point["devices"] for point in curve["points"]] == [1, 2, 4, 8]
    assert {curve["knee"], curve["best"]} <= {1, 2, 4, 8}


def test_a_global_batch_is_divided(predicted: Callable[..., dict[str, Any]]) -> None:
    found = predicted("predict", "mnist-cnn", "--on", "t4:4", "--global-batch", "64", "--no-advice")
    assert found["parallelism"]["global_batch"] == 64
    assert found["workload"]["batch"] == 16
    assert found["throughput"]["samples_per_second"] == pytest.approx(64 / found["step"]["seconds"]["p50"])


def test_micro_batches_links_and_jitter_reach_the_step(predicted: Callable[..., dict[str, Any]]) -> None:
    plain = predicted(*QUICK)["step"]["seconds"]["p50"]
    assert predicted(*QUICK, "--micro-batches", "4")["parallelism"]["micro_batches"] == 4
    assert predicted(*QUICK, "--links", "pcie3-x8")["step"]["seconds"]["p50"] > plain
    assert predicted(*QUICK, "--jitter", "0.2")["step"]["seconds"]["p50"] > plain


def test_a_pipeline_of_a_model_that_needs_two_samples(predicted: Callable[..., dict[str, Any]]) -> None:
    """Batch norm of one value is refused: micro-batches of one sample are not tried."""
    job = (
        "predict",
        "mnist-resnet18",
        "--on",
        "t4:2",
        "--global-batch",
        "8",
        "--strategy",
        "pp=2",
        "--no-advice",
    )
    assert predicted(*job)["parallelism"]["micro_batches"] <= 4


def test_a_network_by_name_joins_nodes(predicted: Callable[..., dict[str, Any]]) -> None:
    job = ("predict", "mnist-cnn", "--on", "t4:1x4", "--batch", "8", "--no-advice")
    slow, fast = (predicted(*job, "--network", name) for name in ("ethernet-1g", "ethernet-100g"))
    assert slow["step"]["seconds"]["p50"] > fast["step"]["seconds"]["p50"]
    assert "ethernet-1g" in str(slow["parallelism"]["network"])


@pytest.mark.parametrize("strategy", ["ddp", "dp", "zero3", "pp=2,dp=2"])
def test_the_timeline_is_a_trace(run_here: Run, tmp_path: Path, strategy: str) -> None:
    file = tmp_path / "step.json"
    evaluation = run_here(*QUICK, "--strategy", strategy, "--timeline", str(file))
    assert evaluation.returncode == 0, evaluation.stderr
    document = json.loads(file.read_text())
    check_trace(document)
    assert "mnist-cnn on t4:4" in document["otherData"]["title"]
    names = {event["args"]["name"] for event in document["traceEvents"] if event["ph"] == "M"}
    assert "compute" in names


def test_text_says_it_all(run_here: Run) -> None:
    text = run_here(*JOB, "--strategy", "zero1").stdout
    assert text.splitlines()[0] == "mnist-cnn on t4:4, batch 8 per device, global batch 32"
    for part in (
        "Strategy: zero1", "Network: ", "inside a node", "Step: ", "exposed communication",
        "Communication takes ", "of computing time and moves", "reduce-scatter", "Best number of GPUs",
        "doubling is worth it", "efficiency", "what if", "2x GPUs",
    ):  # fmt: skip
        assert part in text
    assert "\x1b" not in text


def test_text_of_a_search_names_the_winner_and_the_next_best(run_here: Run) -> None:
    text = run_here(*QUICK, "--strategy", "auto").stdout
    assert "the fastest of" in text
    assert "next best" in text


def test_text_of_stages_and_servers(run_here: Run) -> None:
    assert "Stage 2: " in run_here(*QUICK, "--strategy", "pp=2,dp=2").stdout
    assert "updates old" in run_here(*QUICK, "--strategy", "ps-async").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--strategy", "ddpp"), "did you mean ddp"),
        (("--strategy", "tp=3"), "must divide 4"),
        (("--strategy", "tp=2,dp=4"), "dp=2 uses all of them"),
        (("--strategy", "tp=2"), "requires linear layers"),
        (("--strategy", "pp=4,dp=2"), "but the hardware has 4"),
        (("--strategy", "ep=2"), "none are recognised in this model"),
        (("--strategy", "ps-ksync=9"), "K must be between 1 and 4 workers"),
        (("--strategy", "zero=9"), "is not one of zero=0, zero=1"),
        (("--micro-batches", "3"), "--micro-batches can be 1, 2, 4, 8"),
        (("--micro-batches", "0"), "at least 1"),
        (("--global-batch", "6"), "--global-batch 6 does not divide over 4 replicas"),
        (("--jitter", "2"), "jitter must be at least 0 and below 1"),
        (("--links", "carrier-pigeon"), "carrier-pigeon"),
        (("--on", "t4", "--links", "nvlink3"), "has no effect: t4 has one device per node"),
        (("--network", "ethernet-10g"), "is one node; use several, such as"),
        (("--timeline", "/nowhere/step.json"), "there is no folder"),
        (("--strategy", "pp=4,chunks=2", "--micro-batches", "2"), "got 2; use 4, or schedule 1f1b"),
    ],
)
def test_what_makes_no_sense_is_refused(run_here: Run, arguments: tuple[str, ...], message: str) -> None:
    evaluation = run_here(*QUICK, *arguments)
    assert evaluation.returncode == 2, evaluation.stdout
    assert message in " ".join(evaluation.stderr.split())
    assert "Traceback" not in evaluation.stderr
    assert evaluation.stdout == ""


def test_more_stages_than_layers_say_how_many_would_do(run_here: Run) -> None:
    evaluation = run_here("predict", "mnist-cnn", "--on", "t4:16x4", "--batch", "8", "--strategy", "pp=64",
                       "--network", "ethernet-25g", "--no-advice")  # fmt: skip
    assert evaluation.returncode == 2
    assert "use at most" in evaluation.stderr


def test_one_device_has_a_timeline_too(run_here: Run, tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    assert run_here("predict", "mnist-cnn", "--on", "t4", "--timeline", str(file)).returncode == 0
    check_trace(json.loads(file.read_text()))


def test_batch_and_global_batch_together_must_agree(
    predicted: Callable[..., dict[str, Any]], run_here: Run
) -> None:
    alone = predicted(*QUICK)
    assert predicted(*QUICK, "--global-batch", "32")["step"] == alone["step"]
    refused = run_here(*QUICK, "--global-batch", "64")
    assert refused.returncode == 2
    assert "batch 8 on 4 replicas is a global batch of 32, but --global-batch is 64" in refused.stderr


def test_on_one_device_batch_and_global_batch_are_the_same(predicted: Callable[..., dict[str, Any]]) -> None:
    job = ("predict", "mnist-cnn", "--on", "t4")
    assert predicted(*job, "--batch", "192") == predicted(*job, "--global-batch", "192")


def test_nothing_that_fits_is_an_answer(run_here: Run) -> None:
    job = ("predict", "resnet18", "--image-size", "20000", "--on", "k80:2", "--strategy", "auto", "--json")
    answer = run_here(*job)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert set(json.loads(answer.stdout)["infeasible"]) >= {
        "constraint",
        "needed",
        "available",
        "alternative",
    }
    assert run_here(*job, "--check").returncode == 1
    text = run_here(*job[:-1])
    assert text.returncode == 0
    assert text.stdout.startswith("infeasible: ")


def test_an_unknown_network_between_nodes_is_missing_data(run_here: Run) -> None:
    evaluation = run_here("predict", "mnist-cnn", "--on", "rtx2080ti:4x2", "--batch", "8")
    assert evaluation.returncode == 3
    assert "--network as LINK[:COUNT]" in evaluation.stderr


def test_what_does_not_fit_fails_only_if_checked(run_here: Run) -> None:
    job = ("predict", "mnist-cnn", "--on", "gtx1060-6gb:2", "--batch", "400000", "--no-advice")
    assert run_here(*job).returncode == 0
    assert run_here(*job, "--check").returncode == 1


def test_the_examples_of_the_help_name_hardware_that_is_known() -> None:
    lines = [line.split() for line in PredictRequest.EXAMPLES]
    assert len(lines) >= 5
    for words in lines:
        named = words[words.index("--on") + 1]
        if named.endswith(".yaml"):
            continue
        machine = hardware(named)
        network_of(machine)
        if "--strategy" in words and "auto" not in words:
            strategy = words[words.index("--strategy") + 1]
            assert layout_of(strategy, machine.devices, machine.devices_per_node).devices == machine.devices


def test_the_devices_of_a_node_are_joined_as_in_a_topology(predicted: Callable[..., dict[str, Any]]) -> None:
    def link(devices: int) -> str:
        asked = ("predict", "mnist-cnn", "--on", f"rtx3090:{devices}", "--batch", "8", "--no-advice")
        found = predicted(*asked, "--topology", str(PAIRS))
        name: str = found["parallelism"]["network"]["inside a node"]
        return name

    assert link(2) == "4 x nvlink3"
    assert link(4) == "pcie4-x16"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--topology", str(PAIRS), "--links", "pcie4-x16"), "both say how the devices of a node are joined"),
        (("--topology", str(PAIRS)), "has 4 GPUs; it cannot say how 8"),
        (("--topology", "nowhere.txt"), "no topology file"),
    ],
)
def test_a_topology_that_does_not_fit(run_here: Run, words: tuple[str, ...], complaint: str) -> None:
    run = run_here("predict", "mnist-cnn", "--on", "rtx3090:8", *words)
    assert run.returncode != 0
    assert complaint in run.stderr

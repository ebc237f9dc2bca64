"""`foretrain predict`: the JSON contract, the text, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]
JOB = ("predict", "mnist-cnn", "--on", "t4", "--batch", "8")
ROOFLINE = (*JOB, "--cost-model", "roofline")


@pytest.mark.parametrize("model", ["foretrain", "roofline", "per-layer"])
def test_json_has_all_keys_and_parts_that_sum(predicted: Callable[..., dict[str, Any]], model: str) -> None:
    found = predicted(*JOB, "--cost-model", model)
    assert set(found) >= {
        "workload", "hardware", "knowledge", "step", "throughput", "memory", "bottleneck", "coverage",
        "sources",
    }  # fmt: skip
    step = found["step"]
    assert set(step) >= {
        "seconds", "forward_seconds", "backward_seconds", "optimizer_seconds", "input_seconds",
        "communication_seconds", "exposed_communication_seconds", "parts",
    }  # fmt: skip
    assert set(step["seconds"]) == {"p10", "p50", "p90"}
    assert sum(part["seconds"] for part in step["parts"]) == pytest.approx(step["seconds"]["p50"], rel=1e-9)
    assert all(set(part) == {"name", "seconds", "source"} for part in step["parts"])
    assert found["knowledge"] in ("measured", "calibrated", "extrapolated")
    assert set(found["throughput"]) == {"samples_per_second", "tokens_per_second", "mfu"}
    assert found["throughput"]["samples_per_second"] == pytest.approx(8 / step["seconds"]["p50"])
    assert 0 < found["throughput"]["mfu"] < 1
    assert found["bottleneck"]["kind"] in ("gpu", "network", "input", "launch", "memory")
    assert found["bottleneck"]["verdict"]
    assert isinstance(found["bottleneck"]["advice"], list)
    assert found["coverage"] == {"modelled_share": 1.0, "unmodelled": []}
    assert found["sources"]


def test_input_options_reach_the_step(predicted: Callable[..., dict[str, Any]]) -> None:
    slow = predicted(*ROOFLINE, "--dataset", "imagenet", "--storage", "hdd", "--loader-workers", "1")
    assert slow["bottleneck"]["kind"] == "input"
    assert slow["step"]["seconds"]["p50"] == slow["step"]["input_seconds"]
    assert slow["step"]["hidden_parts"]
    assert any("nvme" in advice["change"] for advice in slow["bottleneck"]["advice"])
    in_turn = predicted(*ROOFLINE, "--dataset", "imagenet", "--storage", "hdd", "--no-overlap")
    assert in_turn["step"]["seconds"]["p50"] > in_turn["step"]["input_seconds"]
    none = predicted(*ROOFLINE, "--dataset", "synthetic")
    assert none["step"]["input_seconds"] == 0


def test_advice_can_be_left_out(predicted: Callable[..., dict[str, Any]]) -> None:
    assert predicted(*ROOFLINE, "--no-advice")["bottleneck"]["advice"] == []
    advice = predicted(*ROOFLINE)["bottleneck"]["advice"]
    assert advice
    assert all(item["gain"] >= 1.02 for item in advice)


def test_many_devices_are_predicted_with_what_they_exchange(
    predicted: Callable[..., dict[str, Any]], run_here: Run
) -> None:
    job = ("predict", "mnist-cnn", "--on", "t4:4", "--batch", "8", "--no-advice")
    found = predicted(*job)
    step, report = found["step"], found["parallelism"]
    assert sum(part["seconds"] for part in step["parts"]) == pytest.approx(step["seconds"]["p50"])
    assert 0 < step["exposed_communication_seconds"] <= step["communication_seconds"]
    assert found["throughput"]["samples_per_second"] == pytest.approx(32 / step["seconds"]["p50"])
    assert report["global_batch"] == 32
    assert [each["verb"] for each in report["exchanges"]] == ["all-reduce"]
    text = run_here(*job).stdout
    assert text.splitlines()[0] == "mnist-cnn on t4:4, batch 8 per device, global batch 32"
    assert "all-reduce gradients" in text


def test_text_says_it_all(run_here: Run) -> None:
    text = run_here(*ROOFLINE).stdout
    assert text.splitlines()[0] == "mnist-cnn on t4, batch 8 per device"
    for part in (
        "Step: ", "80 % between", "known by its data sheet only", "forward ", "backward ", "optimizer ",
        "Throughput: ", "samples/s", "MFU ", "Memory: ", "fits into", "Bottleneck: gpu - ",
        "what would help", "gain", "time of", "backward convolution", "overlapped", "memory of",
    ):  # fmt: skip
        assert part in text
    assert "\x1b" not in text


def test_text_says_whether_input_is_overlapped(run_here: Run) -> None:
    assert "(overlapped)" in run_here(*ROOFLINE, "--no-advice").stdout.splitlines()[3]
    slow = run_here(*ROOFLINE, "--no-advice", "--dataset", "imagenet", "--storage", "hdd").stdout
    assert "(overlapped)" not in slow.splitlines()[3]


def test_text_of_a_model_of_tokens_says_tokens(run_here: Run) -> None:
    job = ("predict", "gpt2", "--on", "t4", "--batch", "2", "--seq-len", "32", "--cost-model", "roofline")
    assert "tokens/s" in run_here(*job, "--no-advice").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cost-model", "magic"), "--cost-model 'magic' is not one of foretrain, roofline"),
        (("--dataset", "imagenett"), "no data set 'imagenett'; did you mean imagenet-jpeg"),
        (("--storage", "tape"), "no storage 'tape'. Known: hdd"),
        (
            ("--dataset", "tokens", "--cost-model", "roofline"),
            "consists of tokens, but the inputs of this model are not tokens",
        ),
        (("--loader-workers", "-1"), "--loader-workers is '-1'; it must be a whole number of at least 0"),
        (("--cost-model", "end-to-end"), "give --timings FILE"),
        (("--timings", "mine.csv"), "--timings is for --cost-model end-to-end"),
    ],
)
def test_bad_input(run_here: Run, arguments: tuple[str, ...], message: str) -> None:
    evaluation = run_here(*JOB, *arguments)
    assert evaluation.returncode == 2
    assert message in evaluation.stderr
    assert evaluation.stdout == ""


def test_a_cost_model_is_fitted_to_own_timings(
    predicted: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    timings = tmp_path / "mine.csv"
    rows = [f"t4,{batch},{0.01 + 0.001 * batch + 1e-5 * (batch % 3)}" for batch in range(2, 40, 2)]
    timings.write_text("\n".join(["device,batch,seconds", *rows]) + "\n")
    found = predicted(*JOB, "--cost-model", "end-to-end", "--timings", str(timings))
    assert predicted(*JOB, "--cost-model", str(timings)) == found
    assert found["step"]["seconds"]["p50"] == pytest.approx(0.018, rel=0.05)
    assert found["knowledge"] == "measured"
    assert "mine.csv" in found["step"]["parts"][0]["source"]


def test_a_learned_model_names_no_precision_of_its_timings(run_here: Run, tmp_path: Path) -> None:
    timings = tmp_path / "mine.csv"
    timings.write_text("device,batch,seconds\n" + "".join(f"t4,{n},{n / 1000}\n" for n in (8, 16, 32, 64)))
    job = ("predict", "mnist-cnn", "--on", "t4", "--batch", "16", "--cost-model", str(timings))
    left_open, given = run_here(*job).stdout, run_here(*job, "--precision", "fp16").stdout
    assert "\nTraining with adamw\n" in left_open
    assert "memory is of --precision fp16" in left_open and "is assumed" not in left_open
    assert "\nTraining in fp16 " in given


def test_timings_that_are_not_there(run_here: Run, tmp_path: Path) -> None:
    evaluation = run_here(*JOB, "--cost-model", "end-to-end", "--timings", str(tmp_path / "none.csv"))
    assert evaluation.returncode in (2, 3, 4)
    assert "none.csv" in evaluation.stderr
    assert "Traceback" not in evaluation.stderr


def test_the_source_of_most_parts_is_one_line_under_their_table(run_here: Run) -> None:
    """80 columns have no room for the same file on every row; sources of single parts stay on their rows."""
    text = run_here("predict", "mnist-cnn", "--on", "t4:2", "--batch", "8", "--precision", "fp16").stdout
    source = "calibrations/mixed_precision.json"
    assert text.count(source) == 1
    assert f"\nBy {source} where no other is named\n" in text
    assert "  calibrations/host.json\n" in text

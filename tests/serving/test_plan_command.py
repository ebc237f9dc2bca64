"""`foretrain plan` as people use it: text, JSON, a page, launch files, exit codes, sentences for mistakes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml
from tests.serving.test_cli_frame import ANSI, BOX, on_a_terminal

PAIRS = Path(__file__).parents[2] / "docs" / "examples" / "nvlink-pairs-topology.txt"
Run = Callable[..., CompletedProcess[str]]
JOB = ("plan", "mnist-cnn", "--samples", "60000", "--epochs", "200000")
FEW = (*JOB, "--gpu", "t4,a10g", "--cloud", "aws", "--max-gpus", "8")
KEYS = {
    "model", "limits", "meets_limits", "chosen", "reported", "front", "cheapest", "fastest", "knee", "plans",
    "job", "two_phases", "job_stream", "excluded", "considered", "notes", "rule", "next_best",
}  # fmt: skip
PLAN_KEYS = {
    "hardware", "provider", "instance", "region", "device", "machines", "gpus", "spot", "usd_per_hour",
    "price_as_of", "strategy", "batch", "micro_batches", "global_batch", "checkpoint_activations", "steps",
    "precision", "weights", "out_of_memory_probability",
    "step_seconds", "memory_bytes", "knowledge", "knowledge_class", "seconds", "usd", "kwh", "co2_kg",
    "probability", "risk", "usd_per_million_tokens", "verdict", "beaten_by", "excess_seconds", "excess_usd",
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_json_has_stable_keys(predicted: Callable[..., dict[str, Any]]) -> None:
    buying = ("--jobs-per-year", "12", "--buy-price", "9000")
    found = predicted(*FEW, "--deadline", "4h", "--budget", "60usd", *buying)
    assert set(found) == KEYS
    assert found["limits"] == {"deadline_seconds": 4 * 3600, "budget_usd": 60}
    assert found["meets_limits"] is True
    plans = found["plans"]
    assert {frozenset(each) for each in plans} == {frozenset(PLAN_KEYS)}
    for each in plans:
        assert set(each["probability"]) == {"deadline", "budget", "both"}
        assert set(each["risk"]) == {"deadline", "budget", "memory", "unknown"}
        assert all(0 <= risk <= 1 for risk in each["risk"].values())
        works = (1 - each["risk"]["memory"]) * (1 - each["risk"]["unknown"])
        assert each["probability"]["deadline"] == pytest.approx(works * (1 - each["risk"]["deadline"]))
        assert each["gpus"] <= 8
        for name in ("seconds", "usd", "step_seconds"):
            assert set(each[name]) == {"p10", "p50", "p90"}
    chosen = plans[found["chosen"]]
    assert chosen["usd"]["p50"] == min(
        each["usd"]["p50"]
        for each in plans
        if each["seconds"]["p50"] <= 4 * 3600 and each["usd"]["p50"] <= 60
    )
    assert [each["verdict"] == "on the front" for each in plans].count(True) <= len(found["front"])
    assert found["job"]["seconds"] == plans[found["reported"]]["seconds"]
    assert set(found["excluded"][0]) == {"reason", "count", "examples", "is_partly"}
    assert set(found["two_phases"]) == {
        "switch_share", "flattens_at_share", "seconds", "usd", "hand_over_usd", "saved_usd", "saved_seconds",
        "phases", "note",
    }  # fmt: skip
    assert found["two_phases"]["usd"] < chosen["usd"]["p50"]
    assert found["job_stream"]["verdict"]


def test_text_says_what_to_rent_first_then_the_front_then_the_job(run_here: Run) -> None:
    run = run_here(*FEW, "--deadline", "4h")
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    assert re.fullmatch(r"✓ mnist-cnn: rent aws:\S+ in \S+ \(\d × \S+\): .+ for \$[\d.]+", lines[0])
    assert re.fullmatch(r"  It keeps the deadline of 4h 00m with .+ probability\.", lines[1])
    assert "global batch" in lines[2] and "per step" in lines[2]
    marked = [line for line in lines[3:] if line.startswith("✓")]
    assert len(marked) == 1
    for start in (
        "Nothing is both faster and cheaper than these (", "  cheapest within deadline: ",
        "  fastest within deadline: ", "  best of both (knee): ", "In two phases: the first ", "Job of ",
        "start-up ", "Limited: ", "  It is the cheapest plan within the deadline; next are ",
        "Note: the same epochs are counted at every batch size",
    ):  # fmt: skip
        assert any(line.startswith(start) for line in lines), start
    assert re.search(r"^\d[\d,]* combinations of machines", run.stdout, flags=re.MULTILINE)


def test_a_pipe_gets_plain_text(run_command: Run) -> None:
    run = run_command(*FEW, FORCE_COLOR="1")
    assert (run.returncode, run.stderr) == (0, "")
    assert not BOX.search(run.stdout) and "\x1b" not in run.stdout
    assert all(line == line.rstrip() for line in run.stdout.splitlines())
    assert "within" not in next(line for line in run.stdout.splitlines() if "cheapest" in line), "no limit"


def test_a_terminal_gets_a_drawing_that_fits() -> None:
    text = on_a_terminal(*FEW, "--deadline", "4h", columns=90)
    assert "Time against money" in text and BOX.search(text)
    assert "Traceback" not in text
    lines = [ANSI.sub("", line) for line in text.splitlines() if "\x1b[2K" not in line]
    assert all(len(line) <= 90 for line in lines)


def test_why_all_names_every_loser_and_why_a_name_only_those(run_here: Run) -> None:
    found = json.loads(run_here(*FEW, "--json").stdout)
    losers = [each["hardware"] for each in found["plans"] if each["verdict"] != "on the front"]
    assert losers
    text = run_here(*FEW, "--why", "all").stdout
    table = text[text.index("Why the others lost:") :]
    rows = table.splitlines()[2 : 2 + len(losers)]
    assert all("aws:" in row and " is " in row for row in rows)
    assert all(("faster" in row) or ("cheaper" in row) for row in rows)
    some = run_here(*FEW, "--why", "T4").stdout
    some = some[some.index("Why the others lost:") :]
    assert "aws:g4dn" in some and "\naws:g5" not in some
    none = run_here(*FEW, "--why", "h100").stdout
    assert "No plan that lost matches 'h100'; --why all lists them." in none


def test_why_shows_by_how_much_a_limit_is_missed(run_here: Run) -> None:
    text = run_here(*FEW, "--deadline", "3h", "--why", "g4dn.xlarge").stdout
    assert re.search(r"^aws:g4dn\.xlarge .+ over the deadline$", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((*FEW, "--deadline", "1d"), 0),
        ((*FEW, "--deadline", "1m"), 1),
        ((*FEW, "--budget", "$0.01"), 1),
        ((*FEW, "--batch", "1000000"), 1),
        ((*JOB, "--gpu", "t4", "--cloud", "lambda"), 1),
    ],
)
def test_a_pipeline_sees_by_the_exit_code_whether_limits_are_kept(
    run_here: Run, arguments: tuple[str, ...], code: int
) -> None:
    assert run_here(*arguments, "--ci").returncode == code
    assert run_here(*arguments).returncode == 0, "without --ci an answer is an answer"


def test_what_is_infeasible_says_why_as_text_and_as_json(run_here: Run) -> None:
    arguments = (*FEW, "--batch", "1000000")
    assert re.match(
        r"infeasible: mnist-cnn needs [\d.]+ GiB on each GPU of aws:", run_here(*arguments).stdout
    )
    answer = json.loads(run_here(*arguments, "--json").stdout)
    assert set(answer["infeasible"]) == {"constraint", "needed", "available", "alternative"}


def test_nothing_within_the_limits_shows_the_nearest(run_here: Run) -> None:
    text = run_here(*FEW, "--deadline", "1m").stdout
    assert text.startswith("mnist-cnn: no plan keeps the limits; nearest is aws:")
    assert "It keeps the deadline of 1m 00s with under 1 % probability." in text
    assert "✓" not in text


@pytest.mark.parametrize(
    ("target", "name"),
    [("torchrun", ".sh"), ("slurm", ".sbatch"), ("skypilot", ".yaml"), ("ray", ".py")],
)
def test_launch_files_of_each_kind_are_written_once(
    run_here: Run, here: Path, target: str, name: str
) -> None:
    run = run_here(*FEW, "--emit", target, "--precision", "fp16", "--script", "my_train.py")
    assert run.returncode == 0, run.stderr
    (file,) = here.iterdir()
    assert file.name.startswith("mnist-cnn-") and file.suffix == name
    assert f"Launch file: {file.name}; start it with: " in run.stdout
    text = file.read_text(encoding="utf-8")
    assert "my_train.py" in text and "fp16" in text
    again = run_here(*FEW, "--emit", target)
    assert again.returncode == 2
    assert f"{file.name} exists already: move it away, or name a file with --emit-to" in again.stderr
    assert file.read_text(encoding="utf-8") == text, "it was left alone"


def test_a_launch_file_says_what_was_planned_also_from_a_workload_file(run_here: Run, here: Path) -> None:
    (here / "job.yaml").write_text("model: mnist-cnn\nprecision: fp16\n", encoding="utf-8")
    named = here / "task.yaml"
    named.write_text("older", encoding="utf-8")
    run = run_here(
        "plan", "job.yaml", *FEW[2:], "--spot", "--emit", "skypilot", "--emit-to", str(named), "--json"
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    reported = found["plans"][found["reported"]]
    task = yaml.safe_load(named.read_text(encoding="utf-8"))
    assert task["num_nodes"] == reported["machines"]
    assert task["resources"]["instance_type"] == reported["instance"]
    assert task["resources"]["use_spot"] is True
    assert task["envs"]["FORETRAIN_PRECISION"] == "fp16"
    assert task["envs"]["FORETRAIN_GLOBAL_BATCH"] == str(reported["global_batch"])


def test_the_page_is_self_contained(run_here: Run, here: Path) -> None:
    run = run_here(*FEW, "--deadline", "4h", "--html", "plan.html")
    assert run.returncode == 0, run.stderr
    assert "Report: plan.html" in run.stdout
    page = (here / "plan.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "mnist-cnn" in page and "aws:g5.xlarge" in page
    assert not re.search(r"(src|href)=\"(?!https?://|#)", page)
    assert not re.search(r"<(script|img)[^>]* src=", page)
    assert "<link" not in page and "@import" not in page


def test_the_chart_of_the_front_is_written(run_here: Run, here: Path) -> None:
    run = run_here(*FEW, "--plot", "plan.svg")
    assert run.returncode == 0, run.stderr
    assert "Plot: plan.svg" in run.stdout
    assert "nothing is both faster and cheaper" in (here / "plan.svg").read_text(encoding="utf-8")


def test_an_unknown_price_to_buy_is_a_note(run_here: Run) -> None:
    run = run_here(*FEW, "--jobs-per-year", "12")
    assert run.returncode == 0
    assert "Note: renting is not compared with buying: the list price of a10g is unknown" in run.stdout
    assert "Rent or buy" not in run.stdout


def test_regions_are_where_the_machines_are(predicted: Callable[..., dict[str, Any]]) -> None:
    found = predicted(*FEW, "--region", "us-west-2,eu-west-1")
    assert {each["region"] for each in found["plans"]} <= {"us-west-2", "eu-west-1"}
    assert found["job"]["price"]["offer"]["region"] == found["plans"][found["reported"]]["region"]
    assert found["job"]["usd"] == found["plans"][found["reported"]]["usd"]


def test_batches_strategies_and_spot_are_passed_on(predicted: Callable[..., dict[str, Any]]) -> None:
    found = predicted(*FEW, "--global-batch", "96", "--strategy", "fsdp", "--spot")
    assert {each["global_batch"] for each in found["plans"]} == {96}
    assert all(each["spot"] for each in found["plans"])
    assert {each["strategy"] for each in found["plans"]} == {"zero3"}
    assert all(each["gpus"] > 1 for each in found["plans"]), "one GPU has nothing to shard"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("plan", "mnist-cnn"),
            r"the length of the job is missing: give --steps, .*",
        ),
        (("plan", "mnist-cnn", "--epochs", "9"), r"--epochs requires --samples, .*"),
        (("plan", "mnist-cnn", "--steps", "9"), r"--steps requires --global-batch, or --reference-batch .*"),
        ((*JOB, "--gpu", "t44"), r"no GPU 't44'.*"),
        ((*JOB, "--cloud", "awz"), r"no cloud 'awz'.*"),
        ((*JOB, "--region", "mars-1"), r"no region 'mars-1'.*"),
        ((*JOB, "--max-gpus", "0"), r"--max-gpus is '0'; it must be a whole number of at least 1"),
        ((*JOB, "--deadline", "0h"), r"--deadline must be above 0, got 0"),
        ((*JOB, "--deadline", "soon"), r"--deadline: 'soon' is not a duration such as .*"),
        ((*JOB, "--confidence", "1"), r"--confidence must be between 0 and 1, got 1"),
        ((*JOB, "--strategy", "tp=2"), r"plan compares the strategies ddp, zero1, zero2, zero3, not 'tp=2'"),
        ((*JOB, "--batch", "8", "--global-batch", "64"), r"give --batch .* or --global-batch, not both"),
        ((*JOB, "--emit", "make"), r"no launch target 'make'.*"),
        ((*JOB, "--emit-to", "x.sh"), r"--emit-to is the file of --emit: give that too"),
        (
            (*JOB, "--html", "/nowhere/plan.html"),
            r"--html /nowhere/plan\.html: there is no folder /nowhere; make it first",
        ),
        (
            (*JOB, "--buy-price", "9"),
            r"--buy-price and --usd-per-kwh are about buying: give --jobs-per-year too",
        ),
        (("plan", "mnist-cn"), r"no model 'mnist-cn'; did you mean mnist-cnn.*"),
    ],
)
def test_mistakes_get_a_sentence(run_here: Run, arguments: tuple[str, ...], sentence: str) -> None:
    run = run_here(*arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert re.fullmatch(f"error: {sentence}\n", run.stderr), run.stderr


def test_machines_that_a_topology_cannot_describe_are_excluded(
    predicted: Callable[..., dict[str, Any]],
) -> None:
    found = predicted(*FEW, "--topology", str(PAIRS))
    assert any("by 4 NVLinks, and a10g has none" in each["reason"] for each in found["excluded"])
    assert {each["gpus"] for each in found["plans"] if each["device"] == "a10g"} <= {1}


def test_a_length_in_tokens_and_its_price(predicted: Callable[..., dict[str, Any]]) -> None:
    """100 million tokens in samples of 128 and steps of 256 samples are 3,052 steps."""
    found = predicted(
        *("plan", "bert-tiny", "--tokens", "100M", "--global-batch", "256", "--gpu", "t4", "--cloud", "aws"),
        *("--max-gpus", "1"),
    )
    each = found["plans"][found["reported"]]
    assert each["steps"] == 3052
    assert each["usd_per_million_tokens"] == pytest.approx(each["usd"]["p50"] / (3052 * 256 * 128 / 1e6))


def test_a_model_without_tokens_has_no_length_in_tokens(run_here: Run) -> None:
    refused = run_here("plan", "mnist-cnn", "--tokens", "1B", "--global-batch", "64", "--gpu", "t4")
    assert refused.returncode == 2
    assert "mnist-cnn has none: give --steps, or --epochs with --samples" in refused.stderr


def test_a_negative_deadline_is_refused(run_here: Run) -> None:
    refused = run_here(*FEW, "--deadline=-3h")
    assert refused.returncode == 2
    assert "negative" in refused.stderr

"""`foretrain guide` as people use it: text, JSON, a page, and sentences where something is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.serving.test_cli_frame import ANSI, BOX, on_a_terminal

from foretrain.errors import InvalidRequest
from foretrain.serving.requests import request_from
from foretrain.serving.requests.planning import GuideRequest

Run = Callable[..., CompletedProcess[str]]
SMALL = ("guide", "mnist-cnn", "--on", "t4,t4:2", "--batch", "32..128")
CELL_KEYS = {
    "machine", "batch", "step_seconds", "is_bound", "samples_per_second", "epoch_seconds", "usd_per_epoch",
    "usd_per_million_samples", "memory_bytes", "capacity_bytes", "micro_batches", "speedup", "efficiency",
    "speedup_per_fold_of_cost", "moved_bytes", "coordination_ratio", "choke", "bottleneck", "knowledge",
}  # fmt: skip


def test_json_has_stable_keys(predicted: Callable[..., dict[str, Any]]) -> None:
    found = predicted(*SMALL, "--samples", "1000")
    assert set(found) == {"strategy", "samples", "batches", "machines", "models", "notes"}
    assert (found["strategy"], found["samples"], found["batches"]) == ("ddp", 1000, [32, 64, 128])
    assert [machine["name"] for machine in found["machines"]] == ["t4", "t4:2"]
    assert found["machines"][1]["usd_per_hour"] > 0
    (model,) = found["models"]
    assert set(model) == {
        "model", "precision", "optimizer", "verdict", "kinds", "fastest", "cheapest", "best_value", "picks",
        "cells",
    }  # fmt: skip
    assert len(model["cells"]) == 2 * 3
    for cell in model["cells"]:
        assert set(cell) == CELL_KEYS
        assert cell["step_seconds"]["p10"] <= cell["step_seconds"]["p50"] <= cell["step_seconds"]["p90"]
        steps = -(-1000 // cell["batch"])
        assert cell["epoch_seconds"]["p50"] == pytest.approx(steps * cell["step_seconds"]["p50"])
    assert {pick["fastest"] for pick in model["picks"]} <= {"t4", "t4:2"}
    assert model["kinds"][0]["pays"][0]["machine"] == "t4:2"


def test_a_blank_cell_says_why_in_json(predicted: Callable[..., dict[str, Any]]) -> None:
    found = predicted("guide", "mnist-cnn", "--on", "t4:3", "--batch", "32")
    (cell,) = found["models"][0]["cells"]
    assert cell == {
        "machine": "t4:3",
        "batch": 32,
        "blank": "does not divide evenly",
        "reason": "a batch of 32 does not divide evenly over 3 devices; 33 does",
    }


def test_text_has_a_table_for_each_view_and_the_verdict_first(run_here: Run) -> None:
    text = run_here(*SMALL).stdout
    lines = text.splitlines()
    assert lines[0].startswith("mnist-cnn: best value: ")
    for title in (
        "Time of a step", "Cost of a ", "Speed-up against one device", "Memory of the fullest device",
        "What sets the pace", "Which to take", "Machines and their prices",
    ):  # fmt: skip
        assert any(line.startswith(title) for line in lines), title
    assert not BOX.search(text) and "\x1b" not in text
    assert re.search(r"^batch +32 +64 +128$", text, flags=re.MULTILINE)


def test_only_what_is_asked_for_is_shown(run_here: Run) -> None:
    text = run_here(*SMALL, "--show", "transfer", "--show", "value").stdout
    assert "Bytes moved between devices in a step" in text
    assert "Speed-up per fold of cost" in text
    assert "Time of a step" not in text


def test_one_batch_is_one_table_like_the_published_one(run_here: Run) -> None:
    text = run_here("guide", "mnist-cnn", "--on", "t4,t4:2", "--batch", "64", "--samples", "6000000").stdout
    assert "Global batch 64; cost of an epoch of 6,000,000 samples" in text
    assert re.search(
        r"^machine +\$/h +epoch +cost +speed-up +delta +memory +choke$", text, flags=re.MULTILINE
    )
    assert re.search(r"^t4 +\$\d.* 1\.00 +1\.00 ", text, flags=re.MULTILINE)


def test_blanks_and_missing_prices_are_explained(run_here: Run) -> None:
    text = run_here("guide", "mnist-cnn", "--on", "gtx1080ti,gtx1080ti:3", "--batch", "32,33").stdout
    assert "- a batch of 32 does not divide evenly over 3 devices; 33 does (gtx1080ti:3)" in text
    assert "no price" in text
    assert "Cost of" not in text, "none of them has an offer"


def test_a_terminal_gets_colours_that_fit() -> None:
    text = on_a_terminal(*SMALL, "--show", "time,verdict", columns=80)
    assert BOX.search(text) and re.search(r"\x1b\[[0-9;]*48;[0-9;]*m", text), "colour behind the numbers"
    assert all(len(ANSI.sub("", line)) <= 80 for line in text.splitlines() if "\x1b[2K" not in line)


def test_the_page_has_every_model_and_machine_and_asks_for_nothing(run_here: Run, tmp_path: Path) -> None:
    file = tmp_path / "guide.html"
    run = run_here(
        "guide", "voice-linear", "voice-conv", "--on", "gtx1080ti", "--counts", "1,2,4",
        "--batch", "20,40,42", "--strategy", "dp", "--samples", "2000", "--html", str(file),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert f"Report: {file}" in run.stdout
    page = file.read_text(encoding="utf-8")
    for expected in (
        "<title>Buyer&#39;s guide: voice-linear, voice-conv</title>", ">gtx1080ti:4</th>", "network choke",
        "a batch of 42 does not divide evenly over 4 devices", "Time of an epoch of 2,000 samples",
        "no price",
    ):  # fmt: skip
        assert expected in page, expected
    assert not re.search(r"(src|href)=\"(?!https?://)", page)
    assert "<link" not in page and "@import" not in page


def test_json_and_a_page_at_once(run_here: Run, tmp_path: Path) -> None:
    file = tmp_path / "guide.html"
    run = run_here(*SMALL, "--json", "--html", str(file))
    assert json.loads(run.stdout)["models"]
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("mnist-cnn", "--batch", "32,-1"), r"--batch is '32,-1'; it must be whole numbers above 0, as .*"),
        (("mnist-cnn", "--batch", "0"), r"--batch is '0'; it must be whole numbers above 0, as .*"),
        (
            ("mnist-cnn", "--counts", "two", "--on", "t4"),
            r"--counts is 'two'; it must be whole numbers above 0.*",
        ),
        (("mnist-cnn", "--on", "t44"), r"no device 't44'.*"),
        (("mnist-cnn", "--show", "tme"), r"no view 'tme'; did you mean time\?.*"),
        (
            ("mnist-cnn", "--on", "t4:2", "--strategy", "auto"),
            r".*all devices, which --strategy auto does not.*",
        ),
        (("mnist-cnn", "--samples", "0"), r"--samples is '0'; it must be a whole number of at least 1"),
        (("mnist-cn",), r"no model 'mnist-cn'; did you mean mnist-cnn.*"),
        (("mnist-cnn", "--cloud", "awz"), r"no cloud 'awz'.*"),
        (
            ("mnist-cnn", "--html", "/nowhere/guide.html"),
            r"--html .*: there is no folder /nowhere; make it first",
        ),
        ((), r"Missing argument 'MODEL\.\.\.' \(see foretrain guide --help\)"),
    ],
)
def test_mistakes_get_a_sentence(run_here: Run, arguments: tuple[str, ...], sentence: str) -> None:
    run = run_here("guide", *arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert re.fullmatch(f"error: {sentence}\n", run.stderr), run.stderr


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (None, ()),
        ("32", (32,)),
        ("32,64", (32, 64)),
        ("32..256", (32, 64, 128, 256)),
        ("10..45,7", (10, 20, 40, 7)),
        ([7, "32..64"], (7, 32, 64)),
    ],
)
def test_numbers_by_list_and_by_doubling(text: Any, numbers: tuple[int, ...]) -> None:
    assert request_from(GuideRequest, {"models": "mnist-cnn", "batch": text}).batch == numbers


def test_numbers_that_are_none() -> None:
    with pytest.raises(InvalidRequest, match=r"`batch` is '32\.\.'; it must be whole numbers"):
        request_from(GuideRequest, {"models": "mnist-cnn", "batch": "32.."})


def test_the_cost_of_one_batch_says_of_what(run_here: Run) -> None:
    """A step of microseconds costs so little that the table shows, and names, a thousand epochs."""
    text = run_here("guide", "mnist-cnn", "--on", "t4", "--batch", "1024", "--samples", "100").stdout
    assert "Global batch 1,024; cost of 1,000 epochs of 100 samples" in text


def test_one_batch_shows_the_views_asked_for(run_here: Run) -> None:
    text = run_here("guide", "mnist-cnn", "--on", "t4", "--batch", "64", "--show", "memory,throughput").stdout
    (head,) = (line for line in text.splitlines() if line.startswith("machine  $/h") or "samples/s" in line)
    assert head.split() == ["machine", "$/h", "memory", "samples/s"]
    assert "Global batch 64\n" in text


def test_a_model_named_twice_is_shown_once(run_here: Run) -> None:
    text = run_here("guide", "mnist-cnn", "mnist-cnn", "--on", "t4", "--batch", "64").stdout
    assert text.count("mnist-cnn:") == 1


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"`batch`: 32\.\.16 ends before it begins; write 16\.\.32"):
        request_from(GuideRequest, {"models": "mnist-cnn", "batch": "32..16"})


def test_a_page_is_not_written_over_a_folder(run_here: Run, tmp_path: Path) -> None:
    run = run_here("guide", "mnist-cnn", "--on", "t4", "--batch", "64", "--html", str(tmp_path))
    assert run.returncode == 2
    assert run.stderr == f"error: --html {tmp_path} is a folder: name a file\n"

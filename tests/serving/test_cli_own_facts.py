"""`devices add`, `offers add` and their `forget`, as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def test_a_device_from_its_file_to_a_prediction(run_here: Callable[..., Any]) -> None:
    added = run_here("devices", "add", str(EXAMPLES / "lab_x1.toml"))
    assert added.stdout.splitlines()[-1] == "Use it like any device: foretrain predict MODEL --on lab-x1"
    assert "lab-x1 (yours)" in run_here("devices").stdout
    assert "yours; forget it: foretrain devices forget lab-x1" in run_here("devices", "lab-x1").stdout
    assert json.loads(run_here("devices", "lab-x1", "--json").stdout)["is_own"] is True
    predicted = run_here("predict", "resnet50", "--on", "lab-x1:8", "--batch", "64", "--json")
    assert json.loads(predicted.stdout)["step"]["seconds"]["p50"] > 0
    assert run_here("devices", "forget", "lab-x1").stdout == "lab-x1 (Lab X1) is forgotten\n"
    gone = run_here("predict", "resnet50", "--on", "lab-x1")
    assert (gone.returncode, "no device 'lab-x1'" in gone.stderr) == (2, True)


def test_a_private_cloud_in_listings_and_plans(run_here: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "lab.csv"
    file.write_text(
        "provider,instance,device,count,usd_per_hour\nlab,t4-4,t4,4,0.4\nlab,v100,v100-sxm2-16gb,1,9\n"
    )
    added = run_here("offers", "add", str(file))
    assert added.stdout.startswith("2 offers added, prices as of 20")
    assert "lab (yours)" in run_here("offers", "--cloud", "lab").stdout
    job = ("plan", "resnet18", "--steps", "1000", "--batch", "32", "--gpu", "t4", "--max-gpus", "4", "--json")
    chosen = json.loads(run_here(*job).stdout)
    assert "lab:t4-4" in json.dumps(chosen)
    assert run_here(*job, "--cloud", "lab").returncode == 0
    forgotten = run_here("offers", "forget", "lab:v100", "--json")
    assert [each["instance"] for each in json.loads(forgotten.stdout)["offers"]] == ["v100"]
    assert run_here("offers", "forget", "lab").returncode == 0
    assert "no cloud 'lab'" in run_here("offers", "--cloud", "lab").stderr


def test_an_accelerator_without_a_model(run_here: Callable[..., Any]) -> None:
    for command in (
        "predict resnet18 --on tpu-v5e:8",
        "plan resnet18 --steps 10 --gpu tpu-v5e",
        "offers --gpu tpu-v5e",
        "devices tpu-v5e",
        "explain tpu-v5e",
        "guide resnet18 --on tpu-v5e",
    ):
        answered = run_here(*command.split())
        assert answered.returncode == 3, command
        assert answered.stderr.startswith("error: foretrain has no model of TPU v5e ('tpu-v5e'"), command
        assert "foretrain devices add FILE.toml" in answered.stderr


def test_a_bad_file_is_refused_with_its_row(run_here: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "lab.csv").write_text("provider,instance,device,count,usd_per_hour\nlab,x,t5,1,1\n")
    refused = run_here("offers", "add", str(tmp_path / "lab.csv"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: lab.csv, row 2: no device 't5'.")

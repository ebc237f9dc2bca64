"""The trainer of zoo models: steps, checkpoints, and what it reports."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from foretrain.backends.trainer import train
from foretrain.workloads.zoo import BuildOptions, build


def trained(folder: Path, steps: int, stop_after: int | None = None) -> dict[str, float]:
    asked = iter(range(10**6))
    torch.manual_seed(0)
    train(
        build("mnist-cnn", BuildOptions(batch=2)),
        steps,
        folder / "checkpoint",
        folder / "progress.json",
        checkpoint_seconds=0.0,
        is_asked=lambda: stop_after is not None and next(asked) > stop_after,
    )
    content: dict[str, float] = json.loads((folder / "progress.json").read_text())
    return content


def test_it_reports_all_its_steps(tmp_path: Path) -> None:
    report = trained(tmp_path, 3)
    assert (report["done"], report["total"], report["saved"], report["since"]) == (3, 3, 3, 0)
    assert report["seconds"] > 0


def test_asked_to_stop_it_saves_and_goes_on_from_there(tmp_path: Path) -> None:
    stopped = trained(tmp_path, 6, stop_after=2)
    assert stopped["done"] == stopped["saved"] == 2
    resumed = trained(tmp_path, 6)
    assert (resumed["done"], resumed["since"]) == (6, 2)
    assert torch.load(tmp_path / "checkpoint", weights_only=True)["done"] == 6


def test_a_complete_training_is_not_repeated(tmp_path: Path) -> None:
    trained(tmp_path, 2)
    again = trained(tmp_path, 2)
    assert (again["done"], again["since"]) == (2, 2)

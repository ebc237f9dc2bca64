"""The energy of products in training: fitted to steps of several sources, each judged without itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from calibration.steps.training_power import TimedStep, fit_power, leave_source_out, read_steps, write_steps

from foretrain.facts.devices import device
from foretrain.prediction.operators import matrix
from foretrain.prediction.operators.matrix import TrainingPower

TRUE = TrainingPower(joules_per_flop=1.6e-12, decline=0.1, eight_bit=0.5)
BOARDS = {"a100-sxm-80gb": "tensor", "h100-sxm": "tensor", "b200": "tensor", "h200-sxm": "fp8"}
KERNELS = matrix.calibration().of_single_kernels()


def step(source: str, board: str, unit: str, power: TrainingPower = TRUE) -> TimedStep:
    """0.8 s of products by a benchmark's share and 0.2 s of other work, as measured under `power`."""
    target = device(board)
    share = KERNELS.share(unit, target)
    slower = share / power.sustained(share, target, unit)
    return TimedStep(source, f"{source} on {board}", board, unit, 0.2 + 0.8 * slower, 1.0, 0.8)


STEPS = [step(source, *board) for source in ("a", "b", "c") for board in BOARDS.items()]


def test_a_step_takes_as_much_longer_as_its_products_do() -> None:
    """At half the share, 0.8 s of products take 1.6 s and the step 1.8 s."""
    known = replace(KERNELS, training=None)
    target = device("a100-sxm-80gb")
    share = known.share("tensor", target)
    halved = TrainingPower(1e-6, 0.0, 0.5)
    limit = halved.sustained(share, target, "tensor")
    timed = STEPS[0]
    assert timed.predicted(halved, known) == pytest.approx(0.2 + 0.8 * share / limit)
    assert timed.predicted(TrainingPower(1e-20, 0.0, 0.5), known) == pytest.approx(1.0)


def test_the_fit_recovers_the_energy() -> None:
    found = fit_power(STEPS, KERNELS)
    for board, unit in BOARDS.items():
        assert found.joules(device(board), unit) == pytest.approx(TRUE.joules(device(board), unit), rel=0.05)


def test_steps_that_products_do_not_decide_are_left_out() -> None:
    far = replace(step("d", "h100-sxm", "tensor"), product_seconds=0.4, measured_seconds=9.0)
    assert fit_power([*STEPS, far], KERNELS) == fit_power(STEPS, KERNELS)


def test_a_source_does_not_judge_itself_nor_its_harness() -> None:
    """`published` has rows of llm-foundry: neither sees the other."""
    hot = TrainingPower(4e-12, 0.1, 0.5)
    odd = [step(name, "h100-sxm", "tensor", hot) for name in ("published", "llm_foundry") for _ in range(9)]
    without = leave_source_out([*STEPS, *odd], KERNELS)
    assert without["published"] == without["llm_foundry"] == fit_power(STEPS, KERNELS)
    assert without["a"].joules_per_flop > without["published"].joules_per_flop


def test_steps_are_kept_as_a_table(tmp_path: Path) -> None:
    write_steps(tmp_path / "steps.csv", STEPS)
    assert read_steps(tmp_path / "steps.csv") == STEPS

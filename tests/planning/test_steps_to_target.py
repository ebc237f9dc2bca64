"""How long a job is: as given, by epochs, or by a log that is on its way to a target."""

import math
from pathlib import Path

import pytest

from foretrain.convergence.from_log import LogRequest, converge
from foretrain.errors import InvalidRequest
from foretrain.planning.steps_to_target import StepsRequest, steps_of, steps_to_target


def log_of(folder: Path, unit: str) -> Path:
    """A loss of 10 / sqrt(k), logged as far as 400: it meets 0.4 at 625."""
    file = folder / f"{unit}.csv"
    rows = [f"{k},{10 / math.sqrt(k):.9f}" for k in range(10, 401, 10)]
    file.write_text("\n".join([f"{unit},loss", *rows]) + "\n")
    return file


def test_steps_and_epochs_by_hand() -> None:
    given = steps_of(StepsRequest(steps=123), 32)
    assert given is not None
    assert given.quantiles.p50 == 123
    # 1,000 samples in batches of 32 are 32 steps; 2.5 epochs of them 80
    by_epochs = steps_of(StepsRequest(epochs=2.5, samples=1000), 32)
    assert by_epochs is not None
    assert by_epochs.quantiles.p10 == by_epochs.quantiles.p90 == 80
    assert steps_of(StepsRequest(samples=1000), 32) is None


def test_steps_until_a_target(tmp_path: Path) -> None:
    found = steps_of(StepsRequest(log=LogRequest(log_of(tmp_path, "step"), "loss=0.4")), 32)
    assert found is not None
    assert found.source == "steps until loss=0.4"
    assert found.quantiles.p50 == pytest.approx(625, rel=0.1)
    assert found.quantiles.p10 <= found.quantiles.p50 <= found.quantiles.p90 < math.inf


def test_a_log_in_epochs_wants_the_samples_of_one(tmp_path: Path) -> None:
    request = LogRequest(log_of(tmp_path, "epoch"), "loss=0.4")
    answer = converge(request)
    found = steps_to_target(answer, 320, 32)
    assert found.quantiles.p50 == pytest.approx(10 * answer.steps.p50)
    with pytest.raises(InvalidRequest, match="--samples"):
        steps_to_target(answer, None, 32)


def test_a_target_out_of_reach_is_no_job(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no known end"):
        steps_of(StepsRequest(log=LogRequest(log_of(tmp_path, "step"), "loss=-5")), 32)


def test_contradictions_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="once"):
        StepsRequest(steps=1, epochs=1, samples=1)
    with pytest.raises(InvalidRequest, match="--samples"):
        StepsRequest(epochs=1)
    with pytest.raises(InvalidRequest, match="above 0"):
        StepsRequest(epochs=0, samples=1)
    with pytest.raises(InvalidRequest, match="at least 1"):
        StepsRequest(samples=0)

"""Batch size and staleness: by hand, and recovering their own numbers."""

import pytest

from foretrain.convergence.batch_size import fit_batch_size_law, penalty_of
from foretrain.errors import InvalidRequest

BATCHES = (256.0, 1024.0, 4096.0, 16384.0)


def test_a_straight_line_is_recovered() -> None:
    law = fit_batch_size_law(BATCHES, [30 + 0.005 * batch for batch in BATCHES])
    assert (law.intercept, law.slope) == pytest.approx((30, 0.005))
    assert law.critical_batch == pytest.approx(6000)
    assert law.epochs_at(8192).p50 == pytest.approx(30 + 0.005 * 8192)
    assert law.epochs_at(32768).p50 == pytest.approx(30 + 0.005 * 32768)
    assert law.steps_at(1024, 102_400).p50 == pytest.approx(100 * (30 + 5.12))
    assert law.efficiency(6000, 1) == pytest.approx(0.5, rel=0.01)


def test_eight_times_the_batch_is_not_eight_times_the_progress() -> None:
    law = fit_batch_size_law(BATCHES, [30 + 0.005 * batch for batch in BATCHES])
    ratio = law.steps_at(2048, 1e6).p50 / law.steps_at(16384, 1e6).p50
    assert 1 < ratio < 8


def test_epochs_never_fall_with_the_batch_outside_the_points() -> None:
    law = fit_batch_size_law((32.0, 64.0, 128.0), (12.0, 11.0, 10.5))
    assert law.slope == 0
    assert law.epochs_at(256).p50 == pytest.approx(10.5)


@pytest.mark.parametrize("batches", [(32.0,), (32.0, 32.0), (0.0, 1.0)])
def test_too_few_points_are_refused(batches: tuple[float, ...]) -> None:
    with pytest.raises(InvalidRequest, match="two or more batch sizes"):
        fit_batch_size_law(batches, [5.0] * len(batches))


def test_staleness_by_hand() -> None:
    penalty = penalty_of(3.0)
    assert (penalty.p10, penalty.p50, penalty.p90) == (1, 2, 4)
    assert penalty_of(0.0).p90 == 1

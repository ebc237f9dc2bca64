"""Signals: integrals and samples that a reader can check by hand."""

import numpy as np
import pytest

from foretrain.prediction.resources.bursts import Signal, constant, stack_spans
from foretrain.store.runs import Resource


def test_amounts_are_spread_over_their_spans_and_add_up() -> None:
    signal = stack_spans([(0.0, 2.0, 4.0), (1.0, 2.0, 3.0)], 4.0)
    assert signal.edges.tolist() == [0.0, 1.0, 2.0, 4.0]
    assert signal.levels.tolist() == [2.0, 5.0, 0.0]
    assert signal.mean == pytest.approx(7 / 4)


def test_the_integral_continues_in_later_periods() -> None:
    signal = stack_spans([(0.0, 1.0, 3.0)], 2.0)
    assert signal.amounts(np.array([0.5, 1.5, 2.5, 4.0])).tolist() == pytest.approx([1.5, 3.0, 4.5, 6.0])


def test_a_monitor_reports_means_between_its_samples() -> None:
    signal = Signal(np.array([0.0, 1.0, 2.0]), np.array([10.0, 0.0]))
    series = signal.sampled(Resource.TRANSMIT, 0.5)
    assert series.values[:4].tolist() == pytest.approx([10.0, 10.0, 0.0, 0.0])
    assert len(series.values) == 20, "five periods of two seconds"
    assert signal.sampled(Resource.TRANSMIT, 2.0).values.tolist() == pytest.approx([5.0] * 5)


def test_nothing_sent_is_a_level_of_zero() -> None:
    assert stack_spans([], 3.0).mean == 0.0
    assert constant(7.0, 3.0).mean == pytest.approx(7.0)

"""Bursts and idle gaps of series whose figures can be read off by eye."""

import numpy as np
import pytest

from foretrain.measuring.watching.report import four_resources, total
from foretrain.prediction.resources.bursts import Pattern, Span, bursts_of, within
from foretrain.store.runs import NODE, Resource, ResourceSeries


def series(
    values: list[float], resource: Resource = Resource.TRANSMIT, **attributes: object
) -> ResourceSeries:
    """Samples a second apart: the first covers 0 to 1."""
    seconds = np.arange(1.0, len(values) + 1)
    options = {"worker": NODE, **attributes}
    return ResourceSeries(resource=resource, seconds=seconds, values=np.array(values), **options)  # type: ignore[arg-type]


def test_bursts_have_an_amount_a_duration_and_gaps() -> None:
    # burst 0-2, gap 2-5, burst 5-7, gap 7-8, burst 8-12, gap 12-13
    answer = bursts_of(series([100e6, 120e6, 0, 0, 0, 80e6, 100e6, 0, 100e6, 100e6, 100e6, 100e6, 0]))
    assert answer is not None
    assert answer.pattern is Pattern.ALTERNATING
    assert answer.spans == (Span(0.0, 2.0), Span(5.0, 7.0), Span(8.0, 12.0))
    assert answer.burst_amount == pytest.approx(100e6)
    assert answer.idle_amount == 0
    assert answer.burst_duration == 3.0  # of 5-7 and 8-12: the first may have begun before the window
    assert answer.idle_duration == 2.0  # of 2-5 and 7-8: the last may have ended after it


def test_runs_at_the_edges_count_where_there_is_no_other() -> None:
    answer = bursts_of(series([0, 0, 50e6, 50e6, 50e6]))
    assert answer is not None
    assert (answer.pattern, answer.burst_duration, answer.idle_duration) == (Pattern.ALTERNATING, 3.0, 2.0)


@pytest.mark.parametrize(
    ("values", "resource", "pattern"),
    [
        ([0.0] * 10, Resource.TRANSMIT, Pattern.IDLE),
        ([100.0, 0.0] * 5, Resource.TRANSMIT, Pattern.IDLE),  # background traffic
        ([0.01, 0.03] * 5, Resource.GPU, Pattern.IDLE),
        ([25e6] * 10, Resource.TRANSMIT, Pattern.BUSY),
        ([0.98] * 10, Resource.GPU, Pattern.BUSY),
        ([0.02] * 10, Resource.GPU, Pattern.IDLE),
        ([0.1] * 10, Resource.CPU, Pattern.IDLE),
        ([0.9] * 10, Resource.CPU, Pattern.BUSY),
        ([1e9] * 10, Resource.MEMORY, Pattern.BUSY),
        ([0.97, 0.99, 0.98, 0.96, 0.99, 0.97], Resource.GPU, Pattern.BUSY),  # contrast below a tenth
        ([0.85, 0.99, 0.99, 0.85, 0.84, 0.99, 0.85, 0.98], Resource.GPU, Pattern.ALTERNATING),
        ([0.9], Resource.GPU, Pattern.BUSY),
        ([0.9, 0.1, 0.1], Resource.GPU, Pattern.IDLE),  # too short to divide
    ],
)
def test_constant_noisy_and_short_signals_have_one_pattern(
    values: list[float], resource: Resource, pattern: Pattern
) -> None:
    answer = bursts_of(series(values, resource))
    assert answer is not None
    assert answer.pattern is pattern
    assert (answer.burst_amount > 0) == (pattern is not Pattern.IDLE)


def test_noise_around_a_level_is_not_a_burst() -> None:
    noise = 2.0 + 0.2 * np.random.default_rng(7).standard_normal(400)
    answer = bursts_of(series(list(noise), Resource.CPU))
    assert answer is not None
    assert answer.pattern is Pattern.BUSY
    assert answer.burst_duration == 400.0


def test_no_samples_have_no_bursts() -> None:
    assert bursts_of(series([])) is None
    assert four_resources([series([])]) == ()


def test_four_resources_of_a_node_make_twelve_figures() -> None:
    quiet = series([1e6] * 6, label="lo")
    busy = series([0, 90e6, 0, 90e6, 0, 90e6], label="eth0")
    measured = four_resources(
        [
            series([0.5] * 6, Resource.CPU, worker=0),
            series([1.0] * 6, Resource.CPU, worker=1),
            series([1e9] * 6, Resource.MEMORY, worker=0),
            quiet,
            busy,
            series([5e6] * 6, Resource.RECEIVE, label="eth0"),
            series([1e12] * 6, Resource.RECEIVE, label="eth0", node=1),
        ],
    )
    assert [each.resource for each in measured] == [
        Resource.CPU,
        Resource.MEMORY,
        Resource.TRANSMIT,
        Resource.RECEIVE,
    ]
    assert [each.burst_amount for each in measured] == [1.5, 1e9, 90e6, 5e6]
    assert [each.pattern.value for each in measured] == ["B", "B", "BIB", "B"]
    assert measured[2].label == "eth0"


def test_gpus_take_the_place_of_the_cpu_and_are_averaged() -> None:
    measured = four_resources(
        [
            series([2.0] * 6, Resource.CPU, worker=0),
            series([0.8] * 6, Resource.GPU, label="0"),
            series([1.0] * 6, Resource.GPU, label="1"),
        ]
    )
    (gpu,) = measured
    assert gpu.resource is Resource.GPU
    assert gpu.burst_amount == pytest.approx(0.9)


def test_a_window_keeps_the_samples_inside() -> None:
    assert list(within(series([1, 2, 3, 4]), (2.0, 3.0)).values) == [2, 3]


def test_workers_that_start_later_add_to_the_total() -> None:
    first = series([1, 1, 1], Resource.CPU, worker=0)
    later = ResourceSeries(resource=Resource.CPU, worker=1, seconds=np.array([3.0]), values=np.array([1.0]))
    assert list(total([first, later]).values) == [1, 1, 2]

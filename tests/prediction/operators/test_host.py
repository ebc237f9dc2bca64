"""Host and device in order, against schedules drawn by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretrain.prediction.operators.host import (
    ends_in_order,
    steady_step,
    synchronise_step,
    waits_per_launch,
)


def test_a_slow_device_hides_the_host() -> None:
    execution = steady_step(np.array([1.0, 1.0]), np.array([5.0, 5.0]))
    assert execution.seconds == 10
    assert execution.waits.tolist() == [0, 0]


def test_a_slow_host_sets_the_pace() -> None:
    execution = steady_step(np.array([5.0, 5.0]), np.array([1.0, 2.0]))
    assert execution.seconds == 10
    assert execution.waits.sum() == 7


def test_one_long_kernel_lets_the_host_catch_up() -> None:
    # launches at 1, 2, 3; kernels 4, 0.1, 0.1: 1-5, 5-5.1, 5.1-5.2
    assert np.allclose(ends_in_order(np.ones(3), np.array([4.0, 0.1, 0.1])), [5.0, 5.1, 5.2])


def test_nothing_takes_no_time() -> None:
    assert steady_step(np.zeros(0), np.zeros(0)).seconds == 0


times = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=30)


@given(times)
def test_the_longer_of_host_and_device_sets_the_pace(
    pairs: list[tuple[float, float]],
) -> None:
    host, device = np.array(pairs).T
    longer = max(host.sum(), device.sum())
    assert np.isclose(steady_step(host, device).seconds, longer, atol=1e-7)
    assert longer - 1e-7 <= synchronise_step(host, device).seconds <= host.sum() + device.sum() + 1e-7


@given(times)
def test_work_and_waiting_make_up_the_step(pairs: list[tuple[float, float]]) -> None:
    host, device = np.array(pairs).T
    for execution in (steady_step(host, device), synchronise_step(host, device)):
        assert np.isclose(execution.waits.sum() + device.sum(), execution.seconds, atol=1e-7)


@given(times)
def test_the_closed_form_is_the_recursion(pairs: list[tuple[float, float]]) -> None:
    host, device = np.array(pairs).T
    launched = end = 0.0
    expected = []
    for launch, run in pairs:
        launched += launch
        end = max(end, launched) + run
        expected.append(end)
    assert np.allclose(ends_in_order(host, device), expected)


def test_a_slow_host_makes_its_device_wait_for_every_second_of_launches() -> None:
    """4 s of launches and 3 s of work: 1 s of waiting, a quarter for each second of launches."""
    assert waits_per_launch(4.0, 3.0) == 0.25
    assert waits_per_launch(np.array([2.0, 0.0]), 3.0).tolist() == [0.0, 0.0]


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)), min_size=1, max_size=8))
def test_waits_in_closed_form_fill_the_steady_step(calls: list[tuple[float, float]]) -> None:
    host, device = np.array(calls).T
    waits = float(waits_per_launch(host.sum(), device.sum()))
    assert np.isclose(device.sum() + waits * host.sum(), steady_step(host, device).seconds)

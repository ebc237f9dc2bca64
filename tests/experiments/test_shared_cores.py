"""Tasks on shared cores, with numbers derived by hand."""

from __future__ import annotations

import pytest
from experiments.shared_cores import fair_shares, simulate_on_cores

from foretrain.prediction.timeline import COMPUTE, Stream, Task, simulate

ONE, TWO = Stream(0, COMPUTE), Stream(1, COMPUTE)
LINK = Stream(0, "exchange")


def wants_all_to_compute(task: Task) -> float:
    return 1.0 if task.stream.lane == COMPUTE else 0.5


def test_two_devices_on_one_core_take_twice_as_long_and_on_two_cores_do_not() -> None:
    tasks = [Task("a", ONE, 3.0), Task("b", TWO, 3.0)]
    assert simulate_on_cores(tasks, {0: 0, 1: 0}, wants_all_to_compute).seconds == pytest.approx(6)
    assert simulate_on_cores(tasks, {0: 0, 1: 1}, wants_all_to_compute).seconds == pytest.approx(3)


def test_a_shorter_task_leaves_the_core_to_the_longer() -> None:
    tasks = [Task("short", ONE, 1.0), Task("long", TWO, 3.0)]
    run = simulate_on_cores(tasks, {0: 0, 1: 0}, wants_all_to_compute)
    assert list(run.ends) == pytest.approx([2, 4])


def test_an_exchange_takes_its_half_of_the_core_from_computing() -> None:
    # both run for 4 s, in which computing gets half: 2 of its 5 s; the other 3 follow alone
    tasks = [Task("compute", ONE, 5.0), Task("exchange", LINK, 4.0)]
    run = simulate_on_cores(tasks, {0: 0}, wants_all_to_compute)
    assert list(run.ends) == pytest.approx([7, 4])


def test_exchanges_that_want_no_core_end_as_on_streams() -> None:
    tasks = [
        Task("forward", ONE, 2.0),
        Task("reduce", LINK, 3.0, after=(0,)),
        Task("backward", ONE, 2.0),
        Task("update", ONE, 1.0, after=(1, 2)),
    ]
    run = simulate_on_cores(tasks, {0: 0}, lambda task: float(task.stream.lane == COMPUTE))
    plain = simulate(tasks)
    assert run.seconds == plain.seconds == 6
    assert list(run.starts) == pytest.approx(list(plain.starts))


def test_work_is_conserved() -> None:
    tasks = [Task(str(index), Stream(index, COMPUTE), 1.0 + index) for index in range(4)]
    run = simulate_on_cores(tasks, {0: 0, 1: 1, 2: 0, 3: 1}, wants_all_to_compute)
    assert list(run.ends) == pytest.approx([2, 4, 4, 6])  # cores have 1 + 3 and 2 + 4 seconds to do


def test_fair_shares_serve_small_wishes_in_full() -> None:
    assert fair_shares([1.0, 0.2, 1.0]) == pytest.approx([0.4, 0.2, 0.4])
    assert fair_shares([0.3, 0.3]) == [0.3, 0.3]

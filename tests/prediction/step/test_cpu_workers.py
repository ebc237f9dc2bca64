"""The equations of CPU workers, by hand: computing, exchanges of each strategy, shared cores and queues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from foretrain.prediction.step.cpu_workers import (
    CONSTANTS,
    DDP,
    DP,
    FSDP,
    PRODUCTS,
    SERVER,
    SINGLE,
    UPDATE,
    Message,
    WorkerConstants,
    WorkerStep,
    prior,
    worker_time,
)

PLAIN = WorkerConstants(**dict.fromkeys(CONSTANTS, 0.0) | {
    f"{group}_factor": 1.0
    for group in ("products", "convolutions", "kernels", "pointwise", "streams", "update")
} | {"wire_share": 1.0, "duplex_bytes": 1e9})  # fmt: skip
"""A machine on which everything takes its predicted or nominal time."""


def step(**changes: Any) -> WorkerStep:
    """10 s of products of which 6 s are backward, 2 s of update, on a network of 100 bytes/s."""
    usual = WorkerStep(
        strategy=SINGLE,
        workers=1,
        workers_on_machine=1,
        cores=2,
        seconds={PRODUCTS: 10.0, UPDATE: 2.0},
        backward_seconds=6.0,
        calls=100,
        network_bytes_per_second=100.0,
    )
    return replace(usual, **changes)


def test_one_worker_computes_and_has_overhead() -> None:
    constants = replace(PLAIN, products_factor=1.5, step_seconds=0.5, call_seconds=0.01)
    time = worker_time(step(), constants)
    assert time.computing[PRODUCTS] == 15
    assert time.overhead == pytest.approx(1.5)
    assert time.seconds == pytest.approx(15 + 2 + 1.5)


def test_two_workers_contend_and_three_share_two_cores() -> None:
    constants = replace(PLAIN, products_contention=0.2)
    two = worker_time(step(workers=2, workers_on_machine=2), constants)
    three = worker_time(step(workers=3, workers_on_machine=3), constants)
    assert two.computing[PRODUCTS] == pytest.approx(12)
    assert three.computing[PRODUCTS] == pytest.approx(24)


def test_buckets_overlap_the_rest_of_the_backward_pass() -> None:
    """200 bytes from 3 s on and 400 bytes from 6 s on, each byte twice half over the wire: 2 s, then 4 s."""
    two = step(strategy=DDP, workers=2, workers_on_machine=2, messages=(Message(200.0, 0.5), Message(400.0)))
    assert worker_time(two, PLAIN).exchanging == pytest.approx(4)
    constants = replace(PLAIN, ddp_message_seconds=0.25)
    assert worker_time(two, constants).exchanging == pytest.approx(4.5)


def test_fsdp_waits_for_each_unit() -> None:
    """Half of 200 and of 2 x 200 bytes pass the wire: 3 s, less what overlaps."""
    messages = (Message(200.0), Message(200.0, passes=2.0))
    two = step(strategy=FSDP, workers=2, workers_on_machine=2, messages=messages)
    assert worker_time(two, PLAIN).exchanging == pytest.approx(3)
    assert worker_time(two, replace(PLAIN, fsdp_overlap=0.25)).exchanging == pytest.approx(1.5)
    assert worker_time(two, replace(PLAIN, fsdp_message_seconds=1.0)).exchanging == pytest.approx(5)


def test_a_server_takes_all_pushes_and_pulls() -> None:
    two = step(strategy=SERVER, workers=2, workers_on_machine=2, messages=(Message(100.0),))
    assert worker_time(two, PLAIN).exchanging == pytest.approx(4)
    three = step(strategy=SERVER, workers=3, workers_on_machine=3, messages=(Message(100.0),))
    assert worker_time(three, PLAIN).exchanging == pytest.approx(5)  # one pushes while two compute


def test_an_asynchronous_server_updates_more_often_than_workers_step() -> None:
    one = step(strategy=SERVER, messages=(Message(100.0),), is_async=True)
    two = replace(one, workers=2, workers_on_machine=2)
    alone, both = worker_time(one, PLAIN).seconds, worker_time(two, PLAIN).seconds
    assert alone == pytest.approx(14)  # 10 s of passes, a push, an update, a pull
    assert alone / 2 < both < alone


def test_data_parallel_exchanges_tensor_by_tensor() -> None:
    messages = (Message(100.0), Message(100.0))
    two = step(strategy=DP, workers=2, workers_on_machine=2, messages=messages, tensors=20)
    assert worker_time(two, replace(PLAIN, dp_message_seconds=0.1)).exchanging == pytest.approx(1 + 2)


@pytest.mark.parametrize("strategy", [DDP, FSDP, DP, SERVER])
@pytest.mark.parametrize("name", [name for name in CONSTANTS if name not in {"duplex_bytes", "fsdp_overlap",
                                                                           "buffer_bytes"}])  # fmt: skip
def test_a_larger_constant_never_makes_a_step_faster(strategy: str, name: str) -> None:
    messages = (Message(1e6, 0.4), Message(4e7))
    for workers in (2, 3):
        given = step(strategy=strategy, workers=workers, workers_on_machine=workers, messages=messages,
                     tensors=4, network_bytes_per_second=1e8)  # fmt: skip
        known = prior().constants
        larger = replace(known, **{name: 2 * getattr(known, name)})
        assert worker_time(given, larger).seconds >= worker_time(given, known).seconds - 1e-12

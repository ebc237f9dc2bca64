"""DataParallel: what moves, in whose way it is, and what the first device holds."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.hand_made_steps import environment, graph, parallel_step_on

from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.cost_models import call_times
from foretrain.prediction.memory.estimate import memory_options
from foretrain.prediction.strategies.program import Program, optimizer_start, parameter_bytes
from foretrain.prediction.strategies.single_process import (
    first_device_bytes,
    launch_by_one,
    parameters,
    replicating_seconds,
    replication,
    single_process,
)
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.workloads.graph import Phase

VOICE = graph("voice-linear", batch=20)


def test_all_parameters_move_twice_in_a_step() -> None:
    result = {exchange.name: exchange for exchange in single_process(Program(VOICE), 4).exchanges}
    size = parameter_bytes(VOICE)
    assert result["copy parameters"].bytes == result["reduce gradients"].bytes == size
    assert size == pytest.approx(48.4e6, rel=1e-3)
    # the slides: 50 MB x 2 x 100 steps of an epoch are 10 GB
    assert 100 * 2 * size == pytest.approx(10e9, rel=0.04)


def test_nothing_overlaps() -> None:
    result = parallel_step_on(VOICE, "dp", "gtx1080ti:4")
    assert result.run.exposed_seconds == pytest.approx(result.communication_seconds)


def test_the_order_of_a_step() -> None:
    result = single_process(Program(VOICE), 4)
    backward = next(i for i, call in enumerate(VOICE.calls) if call.phase is Phase.BACKWARD)
    assert [(e.verb, e.before) for e in result.exchanges] == [
        (Verb.ALL_TO_ALL, 0),
        (Verb.BROADCAST, 0),
        (Verb.ALL_TO_ALL, backward),
        (Verb.ALL_TO_ALL, backward),
        (Verb.REDUCE, optimizer_start(VOICE)),
    ]


def test_samples_and_outputs_of_all_devices_move() -> None:
    two, four = (
        {exchange.name: exchange.bytes for exchange in single_process(Program(VOICE), degree).exchanges}
        for degree in (2, 4)
    )
    for name in ("scatter samples", "gather outputs", "scatter gradients"):
        assert four[name] == 2 * two[name] > 0


def test_one_interpreter_replicates_modules_and_launches_all_forward_passes() -> None:
    at = environment("gtx1080ti")
    alone = call_times(at.model.price(VOICE, at.device))
    among_four = launch_by_one(alone, VOICE, 4)
    forward = np.array([call.phase is Phase.FORWARD for call in VOICE.calls])
    expected = np.where(forward, 4 * alone.host, alone.host)
    expected[0] += replicating_seconds(VOICE, 4)
    assert among_four.host == pytest.approx(expected)
    assert among_four.device == pytest.approx(alone.device)
    assert single_process(Program(VOICE), 4).forward_launchers == 4
    assert launch_by_one(alone, VOICE, 1) is alone


def test_replicating_takes_a_time_for_each_parameter_and_device() -> None:
    each = replication().seconds_per_parameter
    assert 5e-5 < each < 2e-4
    assert replicating_seconds(VOICE, 4) == pytest.approx(4 * parameters(VOICE) * each)
    assert replicating_seconds(VOICE, 1) == 0
    copy = next(each for each in single_process(Program(VOICE), 4).exchanges if each.verb is Verb.BROADCAST)
    assert copy.host_seconds == replicating_seconds(VOICE, 4)


def test_the_first_device_holds_the_outputs_of_all() -> None:
    classes = 10  # voice-linear distinguishes ten speakers
    assert first_device_bytes(VOICE, 4) == 2 * 3 * 20 * classes * 4
    assert first_device_bytes(VOICE, 1) == 0
    held = memory_options(Program(VOICE), 1.0, layout_of("dp", 4, 4))
    assert held.gathered_bytes == first_device_bytes(VOICE, 4)
    assert held.data_parallel == 1  # no buckets


def test_one_device_changes_nothing() -> None:
    whole = Program(VOICE)
    assert single_process(whole, 1) is whole

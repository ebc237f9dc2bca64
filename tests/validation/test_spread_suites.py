"""The suites of many layouts: what is asked of the model, and how the others' timings are used."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from calibration.datasets.ultrascale import NanotronRun
from calibration.datasets.vtrain import MegatronRun
from calibration.frameworks import Holding
from validation.report import Case
from validation.ultrascale_suite import HERE, PredictedRun, _in_speed, _verdicts
from validation.ultrascale_suite import _asked as nanotron_asked
from validation.vtrain_suite import PredictedRun as TimedRun
from validation.vtrain_suite import _asked as megatron_asked
from validation.vtrain_suite import _beside

from foretrain.estimates import Quantiles

NANOTRON = NanotronRun("1B", 2, 4, 2, 2, 1, 1, 64, None, None)
MEGATRON = MegatronRun(2, 2, 2, 32, 4, 1024, 16, 24, 1024, 0.2)


def test_nanotron_shards_state_over_the_replicas_and_cuts_by_its_own_rule() -> None:
    asked = nanotron_asked(NANOTRON)
    assert (asked.layout.tensor, asked.layout.pipeline, asked.layout.shard, asked.layout.data) == (2, 2, 4, 1)
    assert asked.layout.sequence_parallel
    assert asked.starts == ("blocks.11",)
    assert asked.network.nodes == 2


def test_megatron_gives_every_stage_as_many_layers_and_overlaps_nothing() -> None:
    asked = megatron_asked(MEGATRON)
    assert asked.starts == ("blocks.12",)
    assert not asked.layout.overlaps
    assert asked.micro_batches == 4


def test_speeds_are_the_inverse_of_times_and_so_are_their_intervals() -> None:
    speed = _in_speed(Case("one", "1B", 2.0, {HERE: 4.0}, Quantiles(2.0, 4.0, 8.0)))
    assert (speed.measured, speed.predicted[HERE]) == (0.5, 0.25)
    assert speed.interval == Quantiles(0.125, 0.25, 0.5)


def _predicted(size: float, ran: bool) -> PredictedRun:
    run = replace(NANOTRON, tokens_per_second=1.0 if ran else None, memory_bytes=size if ran else None)
    return PredictedRun(run, None, 1.0, Holding(size, 0.0), Holding(size, 0.0), True)


def test_what_fits_is_judged_by_the_limit_of_the_other_size() -> None:
    others = [_predicted(size, size < 50) for size in (10.0, 30.0, 49.0, 60.0, 70.0)]
    predicted = [_predicted(20.0, True), _predicted(80.0, False)]
    verdicts = _verdicts([each.run for each in predicted], predicted, others)
    assert verdicts[HERE] == 2
    assert verdicts["everything runs"] == 1


def test_runs_of_the_same_layout_at_other_depths_correct_the_constants() -> None:
    parts: Any = None
    timed = [TimedRun(replace(MEGATRON, layers=layers, seconds=1.0), parts, 0.0) for layers in (12, 16, 20)]
    apart = TimedRun(replace(MEGATRON, width=2048), parts, 0.0)
    factors = _beside([*timed, apart], np.array([0.5, 0.8, 9.0, 9.0]), np.array([True, True, False, False]))
    assert factors[:3] == pytest.approx([1.625] * 3)
    assert factors[3] == 1.0

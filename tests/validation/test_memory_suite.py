"""The parts of the memory suite that can be checked without its data."""

from __future__ import annotations

import pytest
from validation.memory_baselines import accelerate_bytes, at_batch, deepspeed_bytes
from validation.memory_suite import MIB, _extrapolated, _irregular, next_larger_batch


def test_the_benchmark_tries_batches_in_this_order() -> None:
    tried = [512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1]
    assert [next_larger_batch(batch) for batch in tried[1:]] == tried[:-1]


def test_deepspeed_documents_15_93_gb_for_2851_million_parameters_on_8_devices() -> None:
    assert deepspeed_bytes(2_851_000_000, devices=8) / (1 << 30) == pytest.approx(15.93, abs=0.01)


def test_accelerate_documents_19_61_gb_for_a_model_of_4_9_gb() -> None:
    assert accelerate_bytes(1_316_000_000) / (1 << 30) == pytest.approx(19.61, abs=0.01)


def test_tracked_peaks_grow_with_the_batch() -> None:
    assert at_batch((100.0, 140.0), 32) == 220.0


def test_memory_that_does_not_grow_is_irregular() -> None:
    assert not _irregular([value * MIB for value in (2875, 3733, 5229, 8465, 15169)])
    assert _irregular([value * MIB for value in (6219, 9421, 15833, 28523, 3125)])
    assert _irregular([value * MIB for value in (6027, 9463, 16041, 28217, 29681)])
    assert _irregular([value * MIB for value in (10313, 16667, 26989, 39861, 39861)])


def test_memory_at_twice_the_batch_follows_from_the_two_before() -> None:
    assert _extrapolated({16: 10.0, 32: 14.0}, 64) == 22.0
    assert _extrapolated({32: 14.0}, 64) == 0.0

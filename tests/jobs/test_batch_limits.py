"""Batch sizes to compare, by hand."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.errors import InvalidRequest
from foretrain.jobs.options import BatchLimits


def test_open_limits_take_powers_of_two_up_to_the_largest() -> None:
    assert BatchLimits().is_open
    assert list(islice(BatchLimits().sizes([1]), 4)) == [1, 2, 4, 8]
    assert list(BatchLimits().up_to(100).sizes([1, 8])) == [1, 2, 4, 8, 16, 32, 64]
    assert BatchLimits().up_to(100).rounds(16, 2) == [1, 2]
    assert BatchLimits().up_to(100).rounds(64, 2) == []


def test_a_batch_for_each_device_is_the_only_one() -> None:
    given_one = BatchLimits(batch=48)
    assert list(given_one.sizes([1, 2, 8])) == [48]
    assert given_one.rounds(48, 8) == [1]
    assert given_one.up_to(100) is given_one, "what was given follows"
    in_parts = BatchLimits(batch=48, micro_batches=3)
    assert list(in_parts.sizes([1, 8])) == [16], "48 samples of a device in a step, as predict has it"
    assert in_parts.rounds(16, 8) == [3]
    assert BatchLimits(batch=48, max_global_batch=100).rounds(48, 2) == [1]
    assert BatchLimits(batch=48, max_global_batch=100).rounds(48, 4) == []


def test_a_global_batch_is_shared_out_equally() -> None:
    """100 over one device: parts of 1, 2, 5, 10, 25, 50, 100, the largest of each octave; over 8: none."""
    hundred = BatchLimits(global_batch=100)
    assert list(hundred.sizes([1])) == [1, 2, 5, 10, 25, 50, 100]
    assert list(hundred.sizes([8])) == []
    assert list(hundred.sizes([4, 8])) == [1, 5, 25]
    assert hundred.rounds(25, 4) == [1]
    assert hundred.rounds(5, 4) == [5]
    assert hundred.rounds(10, 4) == []
    assert list(BatchLimits(global_batch=100, micro_batches=4).sizes([1, 5])) == [5, 25]
    assert BatchLimits(global_batch=100, micro_batches=4).rounds(5, 5) == [4]
    assert BatchLimits(global_batch=100, micro_batches=4).rounds(25, 4) == []


def test_micro_batches_alone_fix_their_number() -> None:
    four = BatchLimits(micro_batches=4).up_to(1024)
    assert four.rounds(16, 8) == [4]
    assert four.rounds(64, 8) == [], "2,048 are too many"


@given(st.integers(1, 600), st.sets(st.integers(1, 16), min_size=1))
def test_every_device_count_that_shares_a_global_batch_out_has_a_size_for_it(
    global_batch: int, counts: set[int]
) -> None:
    limits = BatchLimits(global_batch=global_batch)
    sizes = list(limits.sizes(counts))
    assert sizes == sorted(set(sizes))
    for count in counts:
        parts = [(size, rounds) for size in sizes for rounds in limits.rounds(size, count)]
        assert all(size * rounds * count == global_batch for size, rounds in parts)
        if global_batch % count == 0:
            assert (global_batch // count, 1) in parts
            assert (1, global_batch // count) in parts
        else:
            assert not parts


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"batch": 0}, "`batch` must be at least 1, got 0"),
        ({"micro_batches": -1}, "`micro_batches` must be at least 1, got -1"),
        ({"max_global_batch": 0}, "`max_global_batch` must be at least 1, got 0"),
        ({"batch": 8, "global_batch": 64}, "give `batch` .* or `global_batch`, not both"),
        ({"batch": 64, "micro_batches": 3}, "`batch` 64 does not split into 3 equal"),
        ({"global_batch": 64, "micro_batches": 3}, "`global_batch` 64 does not split into 3 equal"),
        ({"global_batch": 64, "max_global_batch": 32}, "`global_batch` 64 exceeds `max_global_batch` 32"),
    ],
)
def test_limits_that_make_no_sense(asked: dict[str, int], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        BatchLimits(**asked)

"""Arrays come back within the stated loss, and take little room."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.support.runs import assert_close_times, assert_close_values

from foretrain.store.arrays import DamagedArray, decode_array, encode_times, encode_values
from foretrain.store.runs import Floats

FLOATS = arrays(np.float64, st.integers(0, 60), elements=st.floats(width=64))
TIMES = arrays(np.float64, st.integers(0, 60), elements=st.floats(0, 1e6))


@given(FLOATS)
def test_any_values_come_back(values: Floats) -> None:
    assert_close_values(decode_array(encode_values(values)), values)


@given(st.one_of(TIMES, FLOATS))
def test_any_times_come_back(seconds: Floats) -> None:
    assert_close_times(decode_array(encode_times(seconds)), seconds)


def test_whole_numbers_are_exact() -> None:
    resident_bytes = np.array([4096 * 1_000_003, 4096 * 1_000_004, 2**40 + 1], dtype=np.float64)
    assert decode_array(encode_values(resident_bytes)).tolist() == resident_bytes.tolist()


def test_a_constant_series_takes_hardly_any_room() -> None:
    assert len(encode_values(np.full(10_000, 123456.0))) < 150


def test_sampled_times_take_two_bytes_each() -> None:
    jittered = np.cumsum(np.random.default_rng(1).normal(0.05, 0.001, 10_000))
    assert len(encode_times(jittered)) / 10_000 < 2.1
    assert len(encode_values(jittered)) / 10_000 < 4


@pytest.mark.parametrize("data", [b"", b"\x09abc", b"\x00abc", encode_values(np.ones(9))[:-3]])
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedArray):
        decode_array(data)

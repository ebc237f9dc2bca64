"""Arrays of samples as compressed bytes, with a stated loss.

Times are kept to 1 microsecond (rounding error at most 0.5 us), values to 24 significant bits (relative error
at most 2^-24), whole numbers exactly. Both are far below what a sampler or a step timer resolves. An array
that an encoding cannot hold within that loss (infinities, NaN, very large or very small values) is kept as
float64, without loss.

The first byte names the encoding; zlib-compressed data follows. Numbers are little-endian, and their bytes
are regrouped by significance before compression (all lowest bytes first), as neighbouring samples share
their high bytes.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from foretrain.store.runs import Floats

TICKS_PER_SECOND = 1e6
TIME_ERROR_SECONDS = 0.5 / TICKS_PER_SECOND
VALUE_RELATIVE_ERROR = 2.0**-24
"""Half of the last bit of a 32-bit float, as which measured values are stored."""

_FLOAT64, _FLOAT32, _INTEGERS, _TICKS = range(4)
_EXACT_INTEGER = 2.0**53
"""Up to here a 64-bit float holds every integer."""
_SMALLEST_FLOAT32 = float(np.finfo(np.float32).tiny)
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


class DamagedArray(ValueError):
    """Bytes that are no encoded array."""


def encode_times(seconds: Floats) -> bytes:
    """Times to the microsecond, as differences."""
    with np.errstate(over="ignore"):
        ticks = np.asarray(seconds, dtype=np.float64) * TICKS_PER_SECOND
    if _within(ticks, _EXACT_INTEGER / 2):
        return _pack(_TICKS, _differences(np.rint(ticks)))
    return _pack(_FLOAT64, np.asarray(seconds, dtype="<f8"))


def encode_values(values: Floats) -> bytes:
    """Values to 24 significant bits; whole numbers exactly, as differences."""
    values = np.asarray(values, dtype=np.float64)
    if _within(values, _EXACT_INTEGER / 2) and bool(np.all(values == np.rint(values))):
        return _pack(_INTEGERS, _differences(values))
    if _fits_float32(values):
        return _pack(_FLOAT32, values.astype("<f4"))
    return _pack(_FLOAT64, values.astype("<f8"))


def decode_array(data: bytes) -> Floats:
    """The array of its bytes."""
    if not data:
        raise DamagedArray("no data")
    encoding, packed = data[0], data[1:]
    if encoding not in (_FLOAT64, _FLOAT32, _INTEGERS, _TICKS):
        raise DamagedArray(f"encoding {encoding} is unknown")
    width = 4 if encoding == _FLOAT32 else 8
    try:
        raw = np.frombuffer(zlib.decompress(packed), dtype=np.uint8)
        grouped = np.ascontiguousarray(raw.reshape(width, -1).T)
    except (zlib.error, ValueError) as error:
        raise DamagedArray(str(error)) from error
    if encoding == _FLOAT64:
        return grouped.view("<f8").reshape(-1).astype(np.float64)
    if encoding == _FLOAT32:
        return grouped.view("<f4").reshape(-1).astype(np.float64)
    whole = np.cumsum(grouped.view("<i8").reshape(-1)).astype(np.float64)
    return whole / TICKS_PER_SECOND if encoding == _TICKS else whole


def _within(values: Floats, bound: float) -> bool:
    return bool(np.all(np.isfinite(values)) and np.all(np.abs(values) < bound))


def _fits_float32(values: Floats) -> bool:
    sizes = np.abs(values)
    in_range = (sizes >= _SMALLEST_FLOAT32) & (sizes <= _LARGEST_FLOAT32)
    return bool(np.all(in_range | (values == 0)))


def _differences(values: Floats) -> npt.NDArray[np.int64]:
    return np.diff(values.astype("<i8"), prepend=np.int64(0))


def _pack(encoding: int, numbers: npt.NDArray[np.generic]) -> bytes:
    by_number = np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, numbers.itemsize)
    return bytes([encoding]) + zlib.compress(np.ascontiguousarray(by_number.T).tobytes(), 6)

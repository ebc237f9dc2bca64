"""Decode times: measured on whatever machine runs this, so only their order counts, and the photograph."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from experiments.decoding import encoded, measure_decoding

from experiments import decoding

image = pytest.importorskip("PIL.Image")


def _photo() -> object:
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    return image.fromarray(noise).resize((500, 375))


def test_a_photograph_is_encoded_near_the_wanted_size() -> None:
    sizes = [len(encoded(_photo(), wanted)) for wanted in (30_000, 60_000)]
    assert sizes[0] < sizes[1]
    assert sizes[1] == pytest.approx(60_000, rel=0.15)
    assert image.open(io.BytesIO(encoded(_photo(), 60_000))).size == (500, 375)


def test_every_data_set_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_REPEATS", 3)
    monkeypatch.setattr(decoding, "_AT_ONCE", 2)
    file = tmp_path / "photo.jpg"
    file.write_bytes(encoded(_photo(), 60_000))
    found = measure_decoding(file)
    assert set(found) == {"imagenet-jpeg", "cifar10", "mnist", "tokens"}
    assert found["imagenet-jpeg"].p50 > found["cifar10"].p50 > found["tokens"].p50 > 0

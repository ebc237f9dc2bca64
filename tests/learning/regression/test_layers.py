"""Lines of layers: by hand, recovered, and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.learning.regression.layers import LayerProfile, LayerTime, learn_layers, read_profile


def network(name: str, *operations: float, kind: str = "convolution") -> LayerProfile:
    """Layers of 1 ms and 2 ns an operation forward, twice that backward; nothing outside them."""
    layers = tuple(
        LayerTime(phase, kind, 1, count, factor * (1e-3 + 2e-9 * count), None)
        for count in operations
        for phase, factor in (("forward", 1), ("backward", 2))
    )
    return LayerProfile(name, "here", 4, sum(layer.measured_seconds for layer in layers), layers)


FITTED = network("a", 1e6, 5e6, 2e7)
OTHER = network("b", 3e6, 1e8)


def test_the_line_of_each_type_is_found() -> None:
    answer = learn_layers([FITTED])
    assert set(answer.lines) == {"convolution forward", "convolution backward"}
    assert answer.lines["convolution forward"].start_seconds == pytest.approx(1e-3)
    assert answer.lines["convolution forward"].slope == pytest.approx(2e-9)
    assert answer.lines["convolution backward"].slope == pytest.approx(4e-9)


def test_another_network_is_the_sum_of_its_layers() -> None:
    """3 · (1 ms + 3e6 · 2 ns) + 3 · (1 ms + 1e8 · 2 ns) = 624 ms."""
    answer = learn_layers([FITTED], [OTHER])
    predicted = answer.predictions[-1]
    assert predicted.predicted_seconds == pytest.approx(0.624)
    assert predicted.error == pytest.approx(0.0, abs=1e-9)
    assert not predicted.is_fitted
    assert answer.predictions[0].is_fitted


def test_time_outside_layers_is_a_share_of_their_time() -> None:
    slower = replace(FITTED, step_seconds=FITTED.step_seconds * 1.25)
    answer = learn_layers([slower], [OTHER])
    assert answer.outside_share == pytest.approx(0.25)
    assert answer.predictions[-1].predicted_seconds == pytest.approx(0.624 * 1.25)


def test_a_kind_without_a_line_is_priced_as_elementwise_and_named() -> None:
    elementwise = network("c", 1e6, 2e6, kind="elementwise")
    pooling = network("d", 1e6, kind="pooling")
    answer = learn_layers([elementwise], [pooling])
    assert answer.predictions[-1].substituted == pytest.approx(1.0)
    assert answer.predictions[-1].error == pytest.approx(0.0, abs=1e-9)


def test_lines_are_of_one_device() -> None:
    with pytest.raises(InvalidRequest, match="lines are of one device; these profiles are of here, t4"):
        learn_layers([FITTED], [replace(OTHER, device="t4")])


def test_a_prediction_as_complexity_must_be_there() -> None:
    with pytest.raises(MissingData, match="no prediction"):
        learn_layers([FITTED], complexity="predicted")
    halved = replace(
        FITTED,
        layers=tuple(replace(each, predicted_seconds=each.measured_seconds / 2) for each in FITTED.layers),
    )
    answer = learn_layers([halved], complexity="predicted")
    assert answer.lines["convolution forward"].slope == pytest.approx(2.0)
    assert answer.predictions[0].error == pytest.approx(0.0, abs=1e-9)


def test_files_that_are_no_profile(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="no profile"):
        read_profile(tmp_path / "none.json")
    file = tmp_path / "profile.json"
    for content in ("{", "[]", "{}", json.dumps({"model": "a", "works": [{"phase": "sideways"}]})):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(InvalidData, match="not a profile"):
            read_profile(file)


def test_a_profile_is_read(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    work = {"layer": "0", "phase": "forward", "kind": "convolution", "works": 1, "operations": 8.0,
            "measured_seconds": 0.5, "predicted_seconds": None}  # fmt: skip
    content = {"model": "a", "device": "here", "batch": 2, "traced_step_seconds": 0.6, "works": [work]}
    file.write_text(json.dumps(content), encoding="utf-8")
    assert read_profile(file) == LayerProfile(
        "a", "here", 2, 0.6, (LayerTime("forward", "convolution", 1, 8.0, 0.5, None),)
    )

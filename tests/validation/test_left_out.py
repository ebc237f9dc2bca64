"""Sources judged by calibrations that no row of them is in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from calibration.left_out import FOLDER, LEFT_OUT, NOT_SHOWN, left_out, substitutes, without
from validation.transfer.case import TransferCase
from validation.transfer.judging import SOURCES, judge_all

import foretrain
from foretrain.facts.calibrations import calibration_content, calibrations_instead, shipped_calibration
from foretrain.prediction.memory.estimate import memory_calibration
from foretrain.prediction.operators import matrix, mixed_precision

_VISION: dict[str, Any] = {
    "model": "resnet18",
    "on": "rtx3090",
    "batch": 32,
    "precision": "fp16",
    "channels_last": True,
}
_FRESH = """
import foretrain, sys
from calibration.left_out import without
with without(sys.argv[1]):
    print(repr(foretrain.predict(**{settings!r}).step.seconds.p50))
"""


def _seconds() -> float:
    answer = foretrain.predict(**_VISION)
    return float(answer.step.seconds.p50)  # type: ignore[union-attr]


def test_no_source_sees_constants_of_another() -> None:
    shipped = _seconds()
    seconds: dict[str, float] = {}
    for source in ("timm", "kernelbench", "vtrain", "kernelbench", "timm"):
        with without(source):
            own = _seconds()
        assert seconds.setdefault(source, own) == own
        assert _seconds() == shipped
    assert seconds["timm"] != shipped
    assert seconds["vtrain"] == shipped  # links and frameworks alone


def test_a_process_that_predicted_before_predicts_like_a_fresh_one() -> None:
    _seconds()
    with without("timm"):
        own = _seconds()
    code = _FRESH.replace("{settings!r}", repr(_VISION))
    fresh = subprocess.run([sys.executable, "-c", code, "timm"], capture_output=True, text=True, check=True)
    assert float(fresh.stdout) == own


def test_constants_are_back_after_an_error() -> None:
    before = matrix.calibration().tf32_flop_per_cycle
    with pytest.raises(RuntimeError), without("kernelbench"):
        assert matrix.calibration().tf32_flop_per_cycle != before
        raise RuntimeError
    assert matrix.calibration().tf32_flop_per_cycle == before


def test_blocks_inside_each_other_add_up() -> None:
    with calibrations_instead({"jitter.json": {"coefficient_of_variation": 0.5}}):
        with calibrations_instead({"jitter.json": {"check": []}}):
            content = calibration_content("jitter.json")
            assert (content["coefficient_of_variation"], content["check"]) == (0.5, [])
        assert calibration_content("jitter.json")["check"]
    assert calibration_content("jitter.json")["coefficient_of_variation"] < 0.5


def test_cases_are_judged_without_their_source() -> None:
    cases = [TransferCase(source, source, _VISION, 1.0) for source in ("timm", "lambda", "timm")]
    first, other, last = (each.seconds for each in judge_all(cases, with_roofline=False))
    assert first == last != other
    shipped = judge_all(cases[:1], with_roofline=False, is_left_out=False)
    assert shipped[0].seconds == other


def test_every_calibration_with_rows_of_a_judged_source_is_accounted_for() -> None:
    folder = Path(str(shipped_calibration("host.json"))).parent
    used = set()
    for file in folder.glob("*.json"):
        if file.name not in ("spread.json", "transfer.json"):  # fitted to what the suite itself judges
            words = _sources(json.loads(file.read_text(encoding="utf-8")).get("data"))
            used |= {(source, file.name) for source in SOURCES if source in words}
    known = {(source, name) for source in SOURCES for name in substitutes(source)}
    assert used - known == set(NOT_SHOWN)


def _sources(data: Any) -> set[str]:
    if isinstance(data, dict):
        return {str(data.get("source", "")), *data.get("sources", [])}
    return {source for part in data or [] for source in _sources(part)}


@pytest.mark.parametrize("source", LEFT_OUT)
def test_entries_stand_for_shipped_ones_and_differ(source: str) -> None:
    contents = json.loads((FOLDER / f"{source}.json").read_text(encoding="utf-8"))
    assert list(contents) == list(LEFT_OUT[source])
    for name, entries in contents.items():
        shipped = calibration_content(name)
        assert entries and all(shipped[key] != value for key, value in entries.items())


def test_no_file_is_left_of_a_source_that_is_not_left_out() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == set(LEFT_OUT)


@pytest.mark.parametrize(
    ("source", "file", "key", "own"),
    [
        ("kernelbench", "streaming.json", "constants", {"window_elements"}),
        ("kernelbench", "convolution.json", "constants", {"depthwise_flop_per_cycle"}),
        ("llm_foundry", "attention.json", "kernels", {"flash1"}),
        ("neusight", "products.json", "units", {"lanes"}),
        ("vtrain", "collectives.json", "technologies", {"nvlink", "network"}),
        ("sailor", "framework_host.json", "devices", {"a100-sxm-80gb"}),
        ("ultrascale", "framework_host.json", "devices", set()),
        ("vtrain", "framework_host.json", "devices", {"a100-sxm-80gb"}),
    ],
)
def test_what_other_sources_measured_is_as_shipped(source: str, file: str, key: str, own: set[str]) -> None:
    """Fails where a calibration was made anew and those without a source were not: `make calibrate`."""
    shipped, other = calibration_content(file)[key], left_out(source)[file][key]
    for name in other.keys() - own:
        assert other[name] == shipped[name]


def test_judged_sources_of_one_harness_are_left_out_together() -> None:
    assert substitutes("sailor_layers") == substitutes("sailor")
    assert left_out("published") == left_out("llm_foundry")
    assert left_out("mlperf") == {}


def test_memory_intervals_of_a_source_come_from_the_others() -> None:
    before = memory_calibration()
    with without("simumax"):
        assert memory_calibration() != before
    assert left_out("simumax")["memory.toml"]["spread"]["sources"]
    assert memory_calibration() == before


def test_without_whole_steps_every_kernel_is_as_measured_alone() -> None:
    with without("timm"):
        known = mixed_precision.calibration()
        assert (known.factors, known.forest, known.devices) == ({}, None, frozenset())

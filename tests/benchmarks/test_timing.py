"""The benchmark harness itself: found by file, timed by the median, failing when a target is missed."""

import json
from pathlib import Path

import pytest
from benchmarks.__main__ import report
from benchmarks.timing import Benchmark, Measurement, benchmark, discover, measure


def nothing() -> None:
    """Takes no time."""


def test_benchmarks_are_found_in_their_files() -> None:
    names = [item.name for item in discover()]
    assert {"import foretrain", "foretrain --help", "read all offers", "search offers"} <= set(names)
    assert len(names) == len(set(names))


def test_two_of_one_name_are_refused() -> None:
    discover()
    with pytest.raises(ValueError, match="two benchmarks are called 'search offers'"):
        benchmark("search offers", target_seconds=1)(nothing)


def test_each_run_is_prepared_and_the_first_only_warms_up() -> None:
    calls: list[str] = []
    given = Benchmark("x", 1.0, 3, lambda: calls.append("work"), lambda: calls.append("prepare"))
    found = measure(given)
    assert calls == ["prepare", "work"] * 4
    assert 0 <= found.fastest_seconds <= found.median_seconds
    assert found.met


@pytest.mark.parametrize(("median", "met"), [(0.1, True), (0.3, True), (0.31, False)])
def test_the_median_decides(median: float, met: bool) -> None:
    assert Measurement("x", median, 0.0, 0.3, 10).met is met


@pytest.mark.parametrize(("target", "code", "verdict"), [(60.0, 0, "met"), (-1.0, 1, "MISSED")])
def test_a_missed_target_is_printed_kept_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: float, code: int, verdict: str
) -> None:
    results = tmp_path / "build" / "benchmarks.json"
    assert report([Benchmark("x", target, 1, nothing, nothing)], results) == code
    assert capsys.readouterr().out.splitlines()[1].endswith(verdict)
    (kept,) = json.loads(results.read_text())
    assert (kept["name"], kept["met"]) == ("x", code == 0)

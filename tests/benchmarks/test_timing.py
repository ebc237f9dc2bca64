"""The benchmark harness itself: found by file, timed by the median, failing when a target is missed."""

import json
from pathlib import Path

import pytest
from benchmarks.__main__ import report, write_page
from benchmarks.commands import ROWS
from benchmarks.timing import (
    Benchmark,
    Failed,
    Measurement,
    NotMeasured,
    Target,
    benchmark,
    discover,
    measure,
)


def nothing() -> None:
    """Takes no time."""


def test_benchmarks_are_found_in_their_files() -> None:
    names = [item.name for item in discover()]
    assert {"--help, cached", "size of the wheel", "read all offers", "search offers"} <= set(names)
    assert len(names) == len(set(names))


def test_two_of_one_name_are_refused() -> None:
    discover()
    with pytest.raises(ValueError, match="two benchmarks are called 'search offers'"):
        benchmark("search offers", target_seconds=1)(nothing)


def test_each_run_is_prepared_and_the_first_only_warms_up() -> None:
    calls: list[str] = []
    given = Benchmark("x", Target(1.0), 3, lambda: calls.append("work"), lambda: calls.append("prepare"))
    found = measure(given)
    assert calls == ["prepare", "work"] * 4
    assert 0 <= found.least <= found.median
    assert found.met


@pytest.mark.parametrize(("median", "met"), [(0.1, True), (0.3, True), (0.31, False)])
def test_the_median_decides(median: float, met: bool) -> None:
    assert Measurement("x", "s", median, 0.0, 0.3, 10).met is met


@pytest.mark.parametrize(("target", "code", "verdict"), [(60.0, 0, "met"), (-1.0, 1, "MISSED")])
def test_a_missed_target_is_printed_kept_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: float, code: int, verdict: str
) -> None:
    results = tmp_path / "build" / "benchmarks.json"
    assert report([Benchmark("x", Target(target), 1, nothing, nothing)], results) == code
    assert capsys.readouterr().out.splitlines()[0].endswith(verdict)
    (kept,) = json.loads(results.read_text())
    assert (kept["name"], kept["met"]) == ("x", code == 0)


def test_a_target_may_be_a_multiple_of_other_work() -> None:
    given = Benchmark("x", Target(1.0, times=2.0, of=nothing), 1, nothing)
    found = measure(given)
    assert found.target == 1.0 + 2.0 * found.reference
    assert found.ratio == found.median / found.reference


def test_other_amounts_are_what_the_work_returns() -> None:
    found = measure(Benchmark("x", Target(12.0), 2, lambda: 11.0, unit="MB"))
    assert (found.median, found.unit, found.met, found.ratio) == (11.0, "MB", True, None)


def test_what_this_machine_lacks_is_reported_and_misses_no_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def needs_network() -> None:
        raise NotMeasured("there is no network")

    assert report([Benchmark("x", Target(1.0), 1, needs_network)], tmp_path / "benchmarks.json") == 0
    assert capsys.readouterr().out.startswith("x: not measured, there is no network\n")


def test_a_command_that_fails_is_a_missed_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise Failed("exit 2")

    assert report([Benchmark("x", Target(1.0), 1, fail)], tmp_path / "benchmarks.json") == 1
    assert capsys.readouterr().out == "x: FAILED, exit 2\n0 of 1 targets met\n"


def test_each_command_is_measured_cold_and_cached() -> None:
    names = [item.name for item in discover()]
    for row in ROWS:
        assert f"{row.name}, cached" in names
        assert (f"{row.name}, cold" in names) == (row.cold is not None)


def test_the_page_shows_the_kept_results(tmp_path: Path) -> None:
    results, page = tmp_path / "benchmarks.json", tmp_path / "performance.md"
    page.write_text("before\n<!-- begin measured -->\nold\n<!-- end measured -->\nafter\n")

    def fail() -> None:
        raise Failed("exit 2")

    def needs_network() -> None:
        raise NotMeasured("there is no network")

    rows = [
        Benchmark("size of the wheel", Target(12.0), 1, lambda: 11.0, unit="MB"),
        Benchmark("a larger one", Target(10.0), 1, lambda: 11.0, unit="MB"),
        Benchmark("a command", Target(1.0), 1, fail),
        Benchmark("an installation", Target(1.0), 1, needs_network),
    ]
    report(rows, results)
    write_page(results, page)
    table = page.read_text()
    assert "| size of the wheel | 11.0 MB |  | 12.0 MB | met |" in table
    assert "| a larger one | 11.0 MB |  | 10.0 MB | **missed** |" in table
    assert "| a command |  |  |  | failed, exit 2 |" in table
    assert "| an installation |  |  |  | not measured, there is no network |" in table
    assert "old" not in page.read_text()
    assert page.read_text().endswith("<!-- end measured -->\nafter\n")

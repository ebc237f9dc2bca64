"""This machine as a device: measured, kept, and found again."""

import math
import os
from pathlib import Path

import pytest

from foretrain.errors import BackendFailed
from foretrain.facts.devices import device, devices
from foretrain.facts.integrity import problems
from foretrain.facts.sheets import FactKind, quantities, sources
from foretrain.measuring import this_machine
from foretrain.measuring.this_machine import measure_this_machine

pytestmark = pytest.mark.usefixtures("quick_measurement")


def test_the_sheet_is_kept_and_found_by_name_and_alias(own_home: Path) -> None:
    measured = measure_this_machine()
    assert (own_home / "devices" / "here.toml").is_file()
    devices.cache_clear()  # as a new process would read it
    assert device("here") == device("this machine") == measured
    assert measured.is_cpu


def test_every_fact_is_measured_within_bounds_and_has_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "_seconds", lambda _: iter((1e-5,)))  # about 50 GFLOP/s, 50 GB/s
    measured = measure_this_machine()
    assert {fact.kind for fact in measured.sheet} == {FactKind.MEASURED}
    assert problems([measured], quantities(), sources()) == []


def test_what_the_system_says_is_taken_over_and_rates_are_sane() -> None:
    measured = measure_this_machine()
    assert all(0 < float(fact.value) < math.inf for fact in measured.sheet)
    assert measured.sheet.number("cores") == len(os.sched_getaffinity(0))
    assert measured.memory_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_the_clock_is_the_highest_of_any_core_and_absent_where_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        this_machine, "_cpu_lines", lambda *keys: {"cpu MHz": ["2000.5", "3100.0"]}.get(keys[0], [])
    )
    assert measure_this_machine().sheet.number("boost_clock_hertz") == pytest.approx(3.1e9)
    monkeypatch.setattr(this_machine, "_cpu_lines", lambda *_: [])
    assert not measure_this_machine().sheet.has("boost_clock_hertz")


def test_rates_follow_from_the_work_and_the_best_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "_seconds", lambda _: iter((4.0, 2.0, 3.0)))
    measured = measure_this_machine()
    # a 64 x 64 product is 2 · 64³ FLOP; a copy of 2^16 floats reads and writes 4 · 2^16 bytes each
    assert measured.sheet.number("fp32_flop_per_second") == pytest.approx(2 * 64**3 / 2.0, rel=1e-4)
    assert measured.memory_bytes_per_second == pytest.approx(2 * 4 * 2**16 / 2.0, rel=1e-4)


def test_a_rate_seen_elsewhere_counts_if_it_is_higher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "_seconds", lambda _: iter((1.0,)))
    measured = measure_this_machine(flop_per_second=1e12, memory_bytes_per_second=1.0)
    assert measured.sheet.number("fp32_flop_per_second") == 1e12
    assert measured.memory_bytes_per_second == pytest.approx(2 * 4 * 2**16, rel=1e-4)


def test_the_work_is_done_once_to_warm_up_and_then_timed() -> None:
    calls: list[int] = []
    times = list(this_machine._seconds(lambda: calls.append(1)))
    assert len(calls) == len(times) + 1
    assert all(math.isfinite(seconds) and seconds >= 0 for seconds in times)


def test_progress_is_reported_and_measuring_again_replaces_the_sheet(own_home: Path) -> None:
    reported: list[str] = []
    measure_this_machine(reported.append)
    measure_this_machine()
    assert reported == ["matrix products", "memory copies"]
    assert [file.name for file in (own_home / "devices").iterdir()] == ["here.toml"]


def test_names_with_quotes_still_make_a_valid_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "cpu_name", lambda: 'A "fast" CPU \\ 3 GHz')
    assert measure_this_machine().name == "This machine: A fast CPU  3 GHz"


def test_a_system_that_does_not_report_its_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError("no")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(BackendFailed, match="/proc/cpuinfo"):
        this_machine.cpu_name()

"""Time that never goes backwards and survives a restart."""

from __future__ import annotations

import pytest

from foretrain.backends import clock
from foretrain.backends.clock import Origin, ScheduleClock, begin, resume_clock


def test_now_never_goes_backwards() -> None:
    readings = iter([105.0, 103.0, 108.0])
    ours = ScheduleClock(Origin("boot", 100.0, 0.0), lambda: next(readings))
    assert [ours.now(), ours.now(), ours.now()] == [5.0, 5.0, 8.0]


def test_the_date_does_not_matter_within_a_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = begin()
    monkeypatch.setattr(
        clock, "stamp", lambda: {"boot": origin.boot, "monotonic": origin.monotonic + 5, "wall": 0.0}
    )
    assert resume_clock(origin, last_seconds=3.0) == origin


def test_after_a_reboot_time_goes_on_from_the_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = Origin("before", 5000.0, 1000.0)
    for wall, expected in ((1070.0, 70.0), (900.0, 60.0)):  # the second date was set back meanwhile
        later = {"boot": "after", "monotonic": 20.0, "wall": wall}
        monkeypatch.setattr(clock, "stamp", lambda later=later: later)
        again = resume_clock(origin, last_seconds=60.0)
        assert 20.0 - again.monotonic == pytest.approx(expected)


def test_stamps_lie_between_the_start_of_an_attempt_and_now() -> None:
    ours = ScheduleClock(Origin("boot", 100.0, 1000.0), lambda: 150.0)
    assert ours.at({"boot": "boot", "monotonic": 130.0, "wall": 0.0}, earliest=10.0) == 30.0
    assert ours.at({"boot": "another machine", "monotonic": 1.0, "wall": 1040.0}, earliest=10.0) == 40.0
    assert ours.at({"boot": "another machine", "monotonic": 1.0, "wall": 990.0}, earliest=10.0) == 10.0
    assert ours.at({"boot": "another machine", "monotonic": 1.0, "wall": 9999.0}, earliest=10.0) == 50.0

"""The suite of Sanghvi's question: epochs become time by what was seen, and nothing beyond the cut."""

from pathlib import Path

import pytest
from validation.report import Case
from validation.seed_job_suite import Clock, in_seconds, read_clocks

from foretrain.estimates import Quantiles

CLOCK = Clock(seconds=(10.0, 20.0, 31.0, 41.0, 100.0), accuracies=(50.0, 60.0, 70.0, 79.0, 81.0))


def test_epochs_at_the_median_time_of_those_seen() -> None:
    case = Case("a, 50% seen", "a", 5.0, {"foretrain": 6.0}, Quantiles(4, 6, 9))
    job = in_seconds(case, CLOCK, 0.5)  # two epochs are seen, of 10 s each; the slow last one is not
    assert job.measured == 100
    assert job.predicted == {"foretrain": 60.0}
    assert job.interval == Quantiles(40, 60, 90)


def test_the_clock_by_hand(tmp_path: Path) -> None:
    assert CLOCK.to_accuracy == 100
    assert CLOCK.seconds_per_epoch(3) == 10
    file = tmp_path / "curves.csv"
    file.write_text("task,entry,epoch,hours,m1,m2\nCIFAR10,x,1,0.5,81,\nSQuAD,y,1,0.5,81,\n")
    assert read_clocks(file)["x"].to_accuracy == pytest.approx(1800)
    assert set(read_clocks(file)) == {"x"}

"""How long a job is: as given, by epochs, or by a log that is on its way to a target."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.planned import workload

from foretrain.convergence import forecast
from foretrain.convergence.forecast import converge
from foretrain.convergence.options import LogRequest
from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.jobs.job import Steps
from foretrain.jobs.length import KnownLength, Length, length_of, length_to_target
from foretrain.jobs.options import LengthOptions, parse_batch_point
from foretrain.workloads.workload import Workload

POINTS = ((256, 40.0), (1024, 44.0), (4096, 60.0), (8192, 80.0))


def steps_of(request: LengthOptions, global_batch: int, of: Workload | None = None) -> Steps | None:
    length = length_of(request, of)
    return None if length is None else length.steps_at(global_batch)


def log_of(folder: Path, unit: str) -> Path:
    """A loss of 10 / sqrt(k), logged as far as 400: it meets 0.4 at 625."""
    file = folder / f"{unit}.csv"
    rows = [f"{k},{10 / math.sqrt(k):.9f}" for k in range(10, 401, 10)]
    file.write_text("\n".join([f"{unit},loss", *rows]) + "\n")
    return file


def test_steps_and_epochs_by_hand() -> None:
    given = steps_of(LengthOptions(steps=123), 32)
    assert given is not None
    assert given.quantiles.p50 == 123
    # 1,000 samples in batches of 32 are 32 steps; 2.5 epochs of them 80
    by_epochs = steps_of(LengthOptions(epochs=2.5, samples=1000), 32)
    assert by_epochs is not None
    assert by_epochs.quantiles.p10 == by_epochs.quantiles.p90 == 80
    assert steps_of(LengthOptions(samples=1000), 32) is None


def test_tokens_by_hand() -> None:
    """A sample of bert-tiny has 128 tokens: 1.28 million tokens are 10,000 samples, 313 steps of 32."""
    text = workload("bert-tiny")
    steps = steps_of(LengthOptions(tokens=1_280_000), 32, text)
    assert steps is not None
    assert steps.quantiles.p50 == 313
    assert steps.source == "tokens as given"


def test_tokens_are_no_length_for_models_without_tokens() -> None:
    with pytest.raises(InvalidRequest, match="mnist-cnn has none: give `steps`"):
        steps_of(LengthOptions(tokens=1e9), 32, workload("mnist-cnn"))
    with pytest.raises(InvalidRequest, match="once"):
        LengthOptions(tokens=1e9, steps=10)


def test_steps_until_a_target(tmp_path: Path) -> None:
    found = steps_of(LengthOptions(log=log_of(tmp_path, "step"), target="loss=0.4"), 32)
    assert found is not None
    assert found.source == "steps until loss=0.4"
    assert found.quantiles.p50 == pytest.approx(625, rel=0.1)
    assert found.quantiles.p10 <= found.quantiles.p50 <= found.quantiles.p90 < math.inf


def test_a_log_in_epochs_requires_samples(tmp_path: Path) -> None:
    request = LogRequest(log_of(tmp_path, "epoch"), "loss=0.4")
    answer = converge(request)
    found = length_to_target(answer, 320).steps_at(32)
    assert found.quantiles.p50 == pytest.approx(10 * answer.steps.p50)
    with pytest.raises(InvalidRequest, match="`samples`"):
        length_to_target(answer, None)


def test_a_target_out_of_reach_is_no_job(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="the job never ends"):
        steps_of(LengthOptions(log=log_of(tmp_path, "step"), target="loss=-5"), 32)


def known(request: LengthOptions) -> Length:
    length = length_of(request)
    assert length is not None
    return length


def test_a_critical_batch_by_hand() -> None:
    # from batch 256 to 1,024 with 768 critical: (1 + 1024/768) / (1 + 256/768) = 1.75 times the epochs
    request = LengthOptions(epochs=40, samples=102400, critical_batch=768, reference_batch=256)
    length = known(request)
    assert length.steps_at(256).quantiles.p50 == 40 * 400
    found = length.steps_at(1024)
    assert found.quantiles.p10 == found.quantiles.p90 == 70 * 100
    assert found.source == "epochs as given, by a critical batch of 768"
    assert found.notes[0].startswith("batch 1,024 takes 1.75 times the epochs of batch 256")
    assert steps_of(request, 1024) == found
    # a critical batch far away: 4 times the batch, a quarter of the steps; far below: none saved
    assert known(LengthOptions(steps=1000, critical_batch=1e12, reference_batch=256)).steps_at(
        1024
    ).quantiles.p50 == pytest.approx(250, abs=1)
    assert known(LengthOptions(steps=1000, critical_batch=1e-6, reference_batch=256)).steps_at(
        1024
    ).quantiles.p50 == pytest.approx(1000, abs=1)


def test_steps_at_a_reference_batch_go_by_their_samples() -> None:
    length = known(LengthOptions(steps=1000, reference_batch=256))
    assert length.steps_at(256).quantiles.p50 == 1000
    assert length.steps_at(256).notes == ()
    assert length.steps_at(64).quantiles.p50 == 4000
    assert "equal epochs" in length.steps_at(64).notes[0]
    assert known(LengthOptions(steps=1000)).steps_at(64).quantiles.p50 == 1000  # as ever


def test_epochs_at_batches_of_ones_own() -> None:
    length = known(LengthOptions(samples=81920, epochs_at=POINTS))
    found = length.steps_at(2048)
    # between the points at 1,024 and 4,096 a third of the way: 44 + 16/3 = 49.3 epochs of 40 steps
    assert found.quantiles.p50 == pytest.approx((44 + 16 / 3) * 40, rel=0.05)
    assert found.quantiles.p10 < found.quantiles.p50 < found.quantiles.p90
    assert found.source == "epochs to target by the epochs at 4 batch sizes"
    assert len(found.notes) == 1
    assert "batch 2,048 takes 49" in found.notes[0]
    assert "outside the known batches" in length.steps_at(16384).notes[1]
    # the steps fall, the samples rise
    steps = [length.steps_at(batch).quantiles.p50 for batch in (256, 1024, 4096, 16384)]
    assert steps == sorted(steps, reverse=True)
    two = known(LengthOptions(samples=81920, epochs_at=POINTS[:2])).steps_at(512)
    assert any("third" in note for note in two.notes)


def test_a_log_at_a_reference_batch(tmp_path: Path) -> None:
    asked = LengthOptions(log=log_of(tmp_path, "step"), target="loss=0.4", reference_batch=1024)
    alone = known(asked)
    at_home, away = alone.steps_at(1024), alone.steps_at(4096)
    assert away.quantiles.p50 == pytest.approx(at_home.quantiles.p50 / 4)
    by_points = known(replace(asked, epochs_at=POINTS))
    assert by_points.steps_at(1024) == at_home
    further = by_points.steps_at(4096)
    assert further.quantiles.p50 == pytest.approx(at_home.quantiles.p50 / 4 * 60 / 44, rel=0.05)
    relative = [found.quantiles.p90 / found.quantiles.p50 for found in (at_home, further)]
    assert relative[1] > relative[0]  # the points' own doubt comes on top
    assert further.source == "steps until loss=0.4, by the epochs at 4 batch sizes"


def test_a_log_is_read_once_for_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = []

    def counted(request: LogRequest) -> object:
        times.append(request)
        return converge(request)

    monkeypatch.setattr(forecast, "converge", counted)
    length = known(LengthOptions(log=log_of(tmp_path, "step"), target="loss=0.4", reference_batch=32))
    assert len({length.steps_at(batch).quantiles.p50 for batch in range(1, 200)}) == 199
    assert len(times) == 1


def test_what_is_taken_for_granted_where_batches_are_compared() -> None:
    assert "same steps" in known(LengthOptions(steps=9)).notes_where_batch_is_chosen[0]
    assert "same epochs" in known(LengthOptions(epochs=9, samples=9)).notes_where_batch_is_chosen[0]
    assert "same epochs" in known(LengthOptions(steps=9, reference_batch=8)).notes_where_batch_is_chosen[0]
    law = LengthOptions(steps=9, reference_batch=8, critical_batch=99)
    assert known(law).notes_where_batch_is_chosen == ()
    assert known(LengthOptions(samples=9, epochs_at=POINTS)).notes_where_batch_is_chosen == ()


def test_steps_are_whole_and_at_least_one() -> None:
    assert known(LengthOptions(steps=10, reference_batch=1)).steps_at(1000).quantiles.p50 == 1
    doubtful = KnownLength(Quantiles(5, 10, 2000), "x", reference_batch=1).steps_at(1000)
    assert doubtful.quantiles == Quantiles(1, 1, 2)
    with pytest.raises(InvalidRequest, match="at least 1"):
        known(LengthOptions(steps=10)).steps_at(0)


@pytest.mark.parametrize("text", ["4096", "x=3", "4096=", "0=3", "4096=-1", "4096=nan", "1.5=2"])
def test_points_are_batch_and_epochs(text: str) -> None:
    assert parse_batch_point("4096=64.5") == (4096, 64.5)
    with pytest.raises(InvalidRequest, match=r"(?i)epochs"):
        parse_batch_point(text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 3, "samples": 9, "epochs_at": POINTS}, "once"),
        ({"epochs_at": POINTS}, "`epochs_at` requires `samples`"),
        ({"epochs_at": POINTS, "samples": 9, "reference_batch": 4}, "omit it"),
        ({"epochs_at": POINTS, "steps": 9}, "requires `reference_batch`"),
        ({"epochs_at": POINTS, "steps": 9, "reference_batch": 4, "critical_batch": 4}, "one of them"),
        ({"steps": 9, "critical_batch": 4}, "requires `reference_batch`"),
        ({"steps": 9, "reference_batch": 0}, "at least 1"),
        ({"reference_batch": 4}, "give one of them"),
    ],
)
def test_contradictory_lengths_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        LengthOptions(**fields)


def test_points_that_make_no_law_are_refused() -> None:
    for points in ((POINTS[0],), (POINTS[0], POINTS[0])):
        with pytest.raises(InvalidRequest, match="two or more"):
            length_of(LengthOptions(samples=9, epochs_at=points))
    with pytest.raises(InvalidRequest, match="`critical_batch`"):
        length_of(LengthOptions(steps=9, reference_batch=4, critical_batch=0))


def test_contradictions_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="once"):
        LengthOptions(steps=1, epochs=1, samples=1)
    with pytest.raises(InvalidRequest, match="`samples`"):
        LengthOptions(epochs=1)
    with pytest.raises(InvalidRequest, match="above 0"):
        LengthOptions(epochs=0, samples=1)
    with pytest.raises(InvalidRequest, match="at least 1"):
        LengthOptions(samples=0)

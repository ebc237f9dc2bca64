"""How errors hang together: what timings say of other steps, and of a model at its other sizes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from foretrain.errors import InvalidRequest
from foretrain.prediction.corrections.error_model import (
    Posterior,
    SizeSpreads,
    StepError,
    StepKey,
    StepTraits,
    TimedErrors,
    TimedSize,
    UserErrors,
    Variances,
    correct_at_size,
    size_spreads,
)
from foretrain.prediction.corrections.timings import shipped_variances


def timed(
    model: str,
    device: str,
    log_ratio: float,
    seconds: float = 1.0,
    precision: str = "fp16",
    host: float = 0.0,
) -> StepError:
    """A step that took exp(log_ratio) times its prediction."""
    return StepError(StepKey(model, device, precision), seconds, StepTraits(host=host), log_ratio)


def test_without_timings_nothing_is_known() -> None:
    posterior = TimedErrors([], Variances(setup=0.02, own=0.01)).posterior(timed("a", "t4", 0.0))
    assert posterior.mean == 0.0
    assert posterior.variance == posterior.prior_variance == pytest.approx(0.03)


def test_the_setup_moves_first_and_is_shrunk() -> None:
    """Another model on another device shares the set-up alone: 0.02 of 0.02 + 0.02."""
    known = TimedErrors([timed("a", "t4", 0.1)], Variances(setup=0.02, own=0.02))
    assert known.posterior(timed("b", "v100", 0.0)).mean == pytest.approx(0.05)


def test_more_timings_are_shrunk_less() -> None:
    """n timings: n 0.02 / (n 0.02 + 0.02) of their mean."""
    for count in (1, 3, 9):
        steps = [timed(f"m{place}", "t4", 0.1) for place in range(count)]
        mean = TimedErrors(steps, Variances(setup=0.02, own=0.02)).posterior(timed("b", "l4", 0.0)).mean
        assert mean == pytest.approx(0.1 * count / (count + 1), rel=1e-6)


def test_a_precision_is_not_blamed_for_another() -> None:
    known = TimedErrors([timed("a", "t4", 0.2, precision="fp32")], Variances(device_precision=0.03, own=0.01))
    assert known.posterior(timed("b", "t4", 0.0, precision="fp32")).mean == pytest.approx(0.15)
    assert known.posterior(timed("b", "t4", 0.0, precision="fp16")).mean == 0.0


def test_a_slow_host_is_seen_in_steps_bound_by_launches() -> None:
    known = TimedErrors([timed("a", "t4", 0.2, host=1.0)], Variances(host=0.04, own=0.01))
    assert known.posterior(timed("b", "t4", 0.0, host=1.0)).mean == pytest.approx(0.16)
    assert known.posterior(timed("b", "t4", 0.0, host=0.1)).mean == pytest.approx(0.016)


def test_a_timed_configuration_keeps_its_time_whatever_the_ratio() -> None:
    for ratio in (-2.0, 0.1, 3.0):
        user = UserErrors([timed("a", "t4", ratio), timed("b", "t4", 0.0)], shipped_variances())
        assert user.shift(timed("a", "t4", 0.0)).log_factor == pytest.approx(ratio, abs=1e-6)


def test_a_timing_far_off_is_its_own() -> None:
    """One of ten is off by e²: it would make the other nine worse, and moves a new model by less than 1 %."""
    others = [timed(f"m{place}", "t4", 0.02 * (-1) ** place) for place in range(9)]
    user = UserErrors([*others, timed("odd", "t4", 2.0)], Variances(setup=0.02, own=0.01))
    assert abs(user.shift(timed("new", "t4", 0.0)).log_factor) < 0.01


def test_a_mean_within_its_uncertainty_moves_nothing_and_one_beyond_it_moves_fully() -> None:
    assert Posterior(0.0, 0.04, 0.05).cautious_shift == 0.0
    assert abs(Posterior(0.02, 0.04, 0.05).cautious_shift) < 0.001
    assert Posterior(-0.5, 0.0025, 0.05).cautious_shift == pytest.approx(-0.5 * 0.25 / 0.2525)
    assert Posterior(0.5, 0.0025, 0.05).cautious_shift == pytest.approx(0.4975 * 0.25 / 0.2525)
    assert Posterior(0.5, 0.0025, 0.05, timings=10).cautious_shift == pytest.approx(0.4975, rel=1e-3)
    assert Posterior(0.02, 0.04, 0.05, timings=10).cautious_shift == 0.0
    assert Posterior(-0.02, 0.04, 0.05, timings=10).cautious_shift == pytest.approx(-0.01)


def test_a_step_of_a_program_that_adds_to_every_step_is_seen_in_other_short_ones() -> None:
    """`length` is -0.5 at 0.1 s / e² and 0.5 at 0.1 s e²: half of either in common, with opposite signs."""
    short, long = 0.1 * math.exp(-2), 0.1 * math.exp(2)
    known = TimedErrors([timed("a", "t4", 0.2, short)], Variances(length=0.04, own=0.01))
    assert known.posterior(timed("b", "l4", 0.0, short)).mean == pytest.approx(0.1)
    assert known.posterior(timed("b", "l4", 0.0, 0.1)).mean == pytest.approx(0.0)
    assert known.posterior(timed("b", "l4", 0.0, long)).mean == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("model", "family"),
    [("resnet50", "resnet"), ("timm:resnet101d", "resnet"), ("hf:org/Llama-3.json", "llama"), ("7b", "7b")],
)
def test_the_family_of_a_model(model: str, family: str) -> None:
    assert StepKey(model, "t4").family == family


def test_timings_left_out_in_closed_form_are_as_if_they_had_not_been_given() -> None:
    """Timings of which none is odd: an odd one is moved by what all others say."""
    random = np.random.default_rng(5)
    steps = [timed(f"m{n % 3}", "t4", float(random.normal(0.1, 0.05)), 0.05 + n, host=0.4) for n in range(6)]
    variances = shipped_variances()
    before, after = TimedErrors(steps, variances).errors_left_out()
    for place, step in enumerate(steps):
        others = TimedErrors([*steps[:place], *steps[place + 1 :]], variances)
        shift = others.posterior(step).cautious_shift
        assert before[place] == pytest.approx(abs(math.expm1(-step.log_ratio)), rel=1e-9)
        assert after[place] == pytest.approx(abs(math.expm1(shift - step.log_ratio)), rel=1e-9)


def test_timings_that_contradict_each_other_are_trusted_less() -> None:
    agree = UserErrors([timed(f"m{place}", "t4", 0.5) for place in range(4)], shipped_variances())
    differ = UserErrors(
        [timed(f"m{place}", "t4", 0.5 * (-1) ** place) for place in range(4)], shipped_variances()
    )
    alone = UserErrors([timed("m0", "t4", 0.5)], shipped_variances())
    assert differ.trust_elsewhere < alone.trust_elsewhere < 0.1
    assert agree.trust_elsewhere > 0.25


def test_timings_far_off_that_agree_are_not_odd() -> None:
    """Nine of ten took three times as long: a new step of that user will too."""
    user = UserErrors(
        [*(timed(f"m{place}", "t4", 1.1) for place in range(9)), timed("odd", "t4", 0.0)],
        Variances(setup=0.02, own=0.01),
    )
    assert user.shift(timed("new", "t4", 0.0)).log_factor > 0.8


def test_steps_that_spend_their_time_on_the_same_parts_share_an_error() -> None:
    """Shares 0.2 apart share exp(-1/2) of the effect, times e apart exp(-1/3)."""
    known = TimedErrors([timed("a", "t4", 0.2, 1.0, host=0.5)], Variances(similar=0.03, own=0.01))
    assert known.posterior(timed("b", "l4", 0.0, 1.0, host=0.5)).mean == pytest.approx(0.15)
    assert known.posterior(timed("b", "l4", 0.0, 1.0, host=0.7)).mean == pytest.approx(0.15 * math.exp(-0.5))
    assert known.posterior(timed("b", "l4", 0.0, math.e, host=0.5)).mean == pytest.approx(
        0.15 * math.exp(-1 / 3)
    )


def test_corrections_are_continuous_in_times_shares_and_sizes() -> None:
    random = np.random.default_rng(3)
    steps = [
        timed(f"m{place % 4}", ("t4", "l4")[place % 2], float(random.normal(0.2, 0.3)), 0.1 + place, host=0.3)
        for place in range(9)
    ]
    target = timed("new", "t4", 0.0, 0.7, host=0.4)
    before = UserErrors(steps, shipped_variances()).shift(target)
    nudged = [
        replace(
            step,
            predicted_seconds=step.predicted_seconds * (1 + 1e-12),
            log_ratio=step.log_ratio + 1e-12,
            traits=replace(step.traits, host=step.traits.host * (1 - 1e-12)),
        )
        for step in steps
    ]
    after = UserErrors(nudged, shipped_variances()).shift(target)
    assert after.log_factor == pytest.approx(before.log_factor, abs=1e-9)
    assert after.deviation == pytest.approx(before.deviation, abs=1e-9)


@pytest.mark.parametrize("bias", [0.0, 0.3, -0.3])
@pytest.mark.parametrize("count", [1, 3, 10])
def test_timings_do_not_hurt_on_average(bias: float, count: int) -> None:
    """Users whose errors are around a bias, with or without one: 40 draws of timings, 20 other models."""
    random = np.random.default_rng(11)
    before = after = 0.0
    for _ in range(40):
        ratios = random.normal(bias, 0.15, count + 20)
        steps = [timed(chr(97 + place), "t4", float(ratio)) for place, ratio in enumerate(ratios)]
        shifts = UserErrors(steps[:count], shipped_variances()).shifts(steps[count:])
        for step, shift in zip(steps[count:], shifts, strict=True):
            before += abs(math.expm1(-step.log_ratio))
            after += abs(math.expm1(shift.log_factor - step.log_ratio))
    assert after <= 1.002 * before
    if abs(bias) > 0 and count == 10:
        assert after < 0.75 * before


_SURE = SizeSpreads(level=1.0, slope=0.0, wander=0.0, noise=1e-6)


def test_one_timing_scales_the_prediction_by_what_it_was_off() -> None:
    quantiles = correct_at_size([TimedSize(16, 1.0, 2.0)], 64, 5.0, _SURE)
    assert quantiles.p50 == pytest.approx(10.0, rel=1e-5)


def test_a_timed_size_is_predicted_as_it_was_measured() -> None:
    timings = [TimedSize(16, 1.0, 1.5), TimedSize(32, 2.0, 2.4)]
    quantiles = correct_at_size(timings, 32, 2.0, SizeSpreads(1.0, 0.1, 0.1, 1e-6))
    assert quantiles.p50 == pytest.approx(2.4, rel=1e-4)


def test_a_slope_is_drawn_on_where_only_a_slope_can_be() -> None:
    timings = [TimedSize(1, 1.0, 1.0), TimedSize(2, 1.0, 1.1)]
    quantiles = correct_at_size(timings, 4, 1.0, SizeSpreads(level=1.0, slope=1.0, wander=0.0, noise=1e-6))
    assert quantiles.p50 == pytest.approx(1.21, rel=1e-4)


def test_the_walk_stays_where_the_last_timing_left_it() -> None:
    timings = [TimedSize(1, 1.0, 1.0), TimedSize(2, 1.0, 1.1)]
    quantiles = correct_at_size(timings, 4, 1.0, SizeSpreads(level=1.0, slope=0.0, wander=0.1, noise=1e-6))
    assert quantiles.p50 == pytest.approx(1.1, rel=1e-4)


def test_the_interval_widens_with_the_distance_in_both_directions() -> None:
    timings = [TimedSize(16, 1.0, 1.0), TimedSize(32, 2.0, 2.0)]
    widths = [
        math.log(quantiles.p90 / quantiles.p10)
        for quantiles in (correct_at_size(timings, size, size / 16, size_spreads()) for size in (32, 64, 256))
    ]
    assert widths == sorted(widths)
    below = correct_at_size(timings, 2, 0.125, size_spreads())
    assert math.log(below.p90 / below.p10) > widths[0]


def test_more_timings_never_widen_the_interval() -> None:
    one = correct_at_size([TimedSize(64, 1.0, 1.2)], 128, 2.0)
    two = correct_at_size([TimedSize(32, 0.5, 0.6), TimedSize(64, 1.0, 1.2)], 128, 2.0)
    assert two.p90 / two.p10 <= one.p90 / one.p10


def test_missing_and_invalid_timings_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least one"):
        correct_at_size([], 8, 1.0)
    with pytest.raises(InvalidRequest, match="above 0"):
        TimedSize(8, 1.0, -1.0)
    with pytest.raises(InvalidRequest, match="above 0"):
        correct_at_size([TimedSize(8, 1.0, 1.0)], 0, 1.0)

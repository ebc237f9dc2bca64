"""The spread between sources: by hand on small numbers, and recovered from residuals it made."""

from __future__ import annotations

import math

import numpy as np
import pytest
from calibration.steps.spread import Residual, fit_spread, is_inside, leave_source_out, unseen_over_seen

from foretrain.estimates import Deviation, Estimate, Part, sequence
from foretrain.facts.devices import device
from foretrain.prediction.spread import (
    KnowledgeClass,
    Spread,
    SpreadTraits,
    knowledge_class,
    shipped_spread,
)
from foretrain.serving.views.wording import probability

KNOWN = SpreadTraits(KnowledgeClass.DEVICE_AND_PRECISION, "bf16")


def test_common_deviations_add_to_those_of_the_parts_in_quadrature() -> None:
    estimate = Estimate("s", (Part("a", 10.0, "x", 3.0, 3.0),), Deviation(4.0, 4.0))
    assert (estimate.quantiles.p10, estimate.quantiles.p90) == (5.0, 15.0)
    assert sequence((estimate, estimate)).common == Deviation(8.0, 8.0)
    assert estimate.scale(2.0).quantiles.p90 == 30.0


def test_an_estimate_is_widened_to_the_shares_asked_for_and_never_narrowed() -> None:
    estimate = Estimate("s", (Part("a", 10.0, "x", 3.0, 3.0),))
    wide = estimate.at_least(0.5, 0.5).quantiles
    assert (wide.p10, wide.p90) == pytest.approx((5.0, 15.0))
    assert estimate.at_least(0.1, 0.1).quantiles == estimate.quantiles


def test_a_spread_of_one_sigma_by_hand() -> None:
    spread = Spread({"constant": math.log(0.1)}, 1.0, 2.0, {})
    assert spread.logs(KNOWN) == pytest.approx((0.1, 0.2))
    bounds = spread.apply(Estimate("s", (Part("a", 1.0, "x"),)), KNOWN).quantiles
    assert (bounds.p10, bounds.p90) == pytest.approx((math.exp(-0.1), math.exp(0.2)))


def test_the_user_s_own_timings_narrow_it() -> None:
    spread, plain = Spread({"constant": math.log(0.1)}, 1.0, 2.0, {}), Estimate("s", (Part("a", 1.0, "x"),))
    halved = spread.apply(plain, KNOWN, narrowing=0.5).quantiles
    assert halved.p90 == pytest.approx(math.exp(0.1))


def test_a_measured_gpu_is_better_known_than_its_generation_and_that_than_a_data_sheet() -> None:
    order = list(KnowledgeClass)
    classes = [knowledge_class(device(name), "bf16") for name in ("h200-sxm", "k80")]
    assert classes == [KnowledgeClass.DEVICE_AND_PRECISION, KnowledgeClass.DATA_SHEET]
    assert order.index(knowledge_class(device("v100-sxm2-16gb"), "fp8")) >= order.index(KnowledgeClass.DEVICE)


def _residuals(wider: float) -> list[Residual]:
    """Ten sources with effects of 0.1; half of them on many devices, whose effects are `wider`."""
    random = np.random.default_rng(1)
    residuals = []
    for source in range(10):
        many = source % 2 == 1
        traits = SpreadTraits(KnowledgeClass.DEVICE_AND_PRECISION, "bf16", 8 if many else 1)
        for case in range(40):
            ratio = random.normal(0.0, 0.1 * (wider if many else 1.0))
            residuals.append(Residual(f"source {source}", f"case {case}", ratio, traits))
    return residuals


def test_a_fit_finds_that_many_devices_are_wider_as_far_as_ten_sources_show() -> None:
    """Pulled by 10 against five sources on many devices: between no difference and all of ln 6."""
    weights = [fit_spread(_residuals(wider)).weights["several devices"] for wider in (1.5, 3.0, 6.0)]
    assert 0 < weights[0] < weights[1] < weights[2] < math.log(6.0)


def test_every_source_has_one_vote() -> None:
    """A source with forty times the cases of the others moves the interval as one of them."""
    few = [each for each in _residuals(1.0) if each.name == "case 0" or each.source != "source 0"]
    many = _residuals(1.0)
    assert fit_spread(few).logs(KNOWN) == pytest.approx(fit_spread(many).logs(KNOWN), rel=0.15)


def test_a_gpu_that_no_source_ran_on_is_as_much_wider_as_operators_on_gpus_left_out() -> None:
    spread = fit_spread(_residuals(1.0))
    wider = unseen_over_seen()
    assert wider > 1.2
    by_class = [spread.logs(SpreadTraits(known, "bf16"))[1] for known in list(KnowledgeClass)[1:]]
    expected = [1.0, 1.0, wider, wider**2]
    assert [width / by_class[0] for width in by_class] == pytest.approx(expected, rel=1e-6)


def test_no_plan_on_a_gpu_known_by_its_data_sheet_is_over_99_percent_certain() -> None:
    for spread in (fit_spread(_residuals(1.0)), shipped_spread()):
        assert spread is not None
        most = 1 - spread.surprise[KnowledgeClass.DATA_SHEET.value]
        assert probability(most) != probability(1.0)
        assert "over" not in probability(most)


def test_less_knowledge_is_never_narrower() -> None:
    assert fit_spread(_residuals(0.3)).weights["several devices"] == 0.0


def test_a_source_is_covered_by_the_spread_of_the_others() -> None:
    residuals = _residuals(2.0)
    others = leave_source_out(residuals)
    inside = [is_inside(each, others[each.source]) for each in residuals]
    assert 0.75 <= sum(inside) / len(inside) <= 0.85


def test_a_fit_does_not_depend_on_the_last_bit() -> None:
    residuals = _residuals(2.0)
    moved = [Residual(r.source, r.name, r.log_ratio * (1 + 1e-12), r.traits) for r in residuals]
    first, second = fit_spread(residuals), fit_spread(moved)
    assert first.logs(KNOWN) == pytest.approx(second.logs(KNOWN), rel=1e-6)

"""The spread between sources: by hand on small numbers, and recovered from residuals it made."""

from __future__ import annotations

import math

import numpy as np
import pytest
from calibration.steps.spread import Residual, fit_spread, is_inside, leave_source_out

from foretrain.estimates import Deviation, Estimate, Part, sequence
from foretrain.facts.devices import device
from foretrain.prediction.spread import KnowledgeClass, Spread, StepTraits, knowledge_class

KNOWN = StepTraits(KnowledgeClass.DEVICE_AND_PRECISION, "bf16")


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
        traits = StepTraits(KnowledgeClass.DEVICE_AND_PRECISION, "bf16", 8 if many else 1)
        for case in range(40):
            ratio = random.normal(0.0, 0.1 * (wider if many else 1.0))
            residuals.append(Residual(f"source {source}", f"case {case}", ratio, traits))
    return residuals


def test_a_fit_recovers_how_much_wider_many_devices_are() -> None:
    spread = fit_spread(_residuals(3.0))
    assert math.exp(spread.weights["several devices"]) == pytest.approx(3.0, rel=0.15)


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

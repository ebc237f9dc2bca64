"""Scaling laws against what their authors published, and the loss that is expected of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest

from foretrain.convergence.scaling_laws import (
    AllocationLaw,
    ParametricLaw,
    best_batch_tokens,
    forecast_loss,
    laws,
    loss_law,
)
from foretrain.errors import UnknownName
from foretrain.facts.sheets import sources

GOPHER = 5.76e23
"""The FLOP of Gopher, for which Hoffmann et al. give the best size."""


@dataclass(frozen=True)
class Counted:
    """A model of N parameters, however they are counted."""

    parameters_with_embedding: int
    parameters_without_embedding: int = 0
    block_flop_per_token: float = 0.0


def parametric(name: str) -> ParametricLaw:
    law = laws()[name]
    assert isinstance(law, ParametricLaw)
    return law


def allocation(name: str) -> AllocationLaw:
    law = laws()[name]
    assert isinstance(law, AllocationLaw)
    return law


def test_the_best_size_for_the_compute_of_gopher_is_as_published() -> None:
    # Hoffmann et al. 2022: 40B by approach 3, 67B and 63B by approaches 1 and 2, on 1.4T to 1.5T tokens.
    size, tokens = parametric("hoffmann-2022").optimum(GOPHER)
    assert size == pytest.approx(40e9, rel=0.03)
    assert 6 * size * tokens == pytest.approx(GOPHER)
    # The replication agrees with approaches 1 and 2, and has about 20 tokens per parameter.
    size, tokens = parametric("besiroglu-2024").optimum(GOPHER)
    assert 65e9 < size < 75e9
    assert 1.3e12 < tokens < 1.5e12
    assert tokens / size == pytest.approx(20, rel=0.1)


def test_exponents_are_as_published() -> None:
    for name, exponent in (("hoffmann-2022", 0.46), ("besiroglu-2024", 0.513)):
        low, _ = parametric(name).optimum(1e20)
        high, _ = parametric(name).optimum(1e22)
        assert math.log(high / low) / math.log(100) == pytest.approx(exponent, abs=0.005)


def test_no_size_has_less_loss_than_the_optimum() -> None:
    for law in map(parametric, ("hoffmann-2022", "besiroglu-2024")):
        for flop in (1e18, 1e21, 1e24):
            size, _ = law.optimum(flop)
            losses = [
                law.loss(Counted(round(size * factor)), flop / 6 / round(size * factor))
                for factor in (0.5, 0.9, 1.0, 1.1, 2.0)
            ]
            assert min(losses) == losses[2]


def test_a_loss_by_hand() -> None:
    # 1.8172 + 482.01 / (1e9)^0.3478 + 2085.43 / (2e10)^0.3658 = 1.8172 + 0.3572 + 0.3557
    terms = parametric("besiroglu-2024").terms(Counted(10**9), 2e10)
    assert terms == pytest.approx((1.8172, 0.3572, 0.3557), abs=1e-4)


def test_both_laws_agree_where_they_were_fitted() -> None:
    # They describe the same runs: in the middle of the data they differ by less than 1 %.
    new, old = parametric("besiroglu-2024"), parametric("hoffmann-2022")
    for size, tokens in ((2e8, 1e10), (1e9, 2e10), (5e9, 1e11)):
        model = Counted(round(size))
        assert new.loss(model, tokens) == pytest.approx(old.loss(model, tokens), rel=0.01)


def test_allocations_by_hand() -> None:
    # Kaplan et al. 2020, table 6: 1.3e9 parameters without embeddings for one PF-day.
    kaplan = allocation("kaplan-2020")
    assert kaplan.best_size(1e15 * 86_400) == pytest.approx(1.3e9)
    assert kaplan.best_size(1e16 * 86_400) == pytest.approx(1.3e9 * 10**0.73)
    # DeepSeek LLM: M = 0.1715 C^0.5243, and D = 5.8316 C^0.4757 is C / M.
    deepseek = allocation("deepseek-2024")
    assert 1e20 / deepseek.best_size(1e20) == pytest.approx(5.8316 * 1e20**0.4757, rel=1e-3)
    fitting = Counted(1, block_flop_per_token=deepseek.best_size(1e20))
    tokens = 1e20 / deepseek.best_size(1e20)
    assert deepseek.regret(fitting, tokens) == pytest.approx(0, abs=1e-9)
    assert deepseek.regret(replace(fitting, block_flop_per_token=1e9), tokens) > 0.1
    assert best_batch_tokens(fitting, tokens) == pytest.approx(0.2920 * 1e20**0.3271)


def test_an_extrapolation_names_the_range() -> None:
    law = parametric("besiroglu-2024")
    assert law.extrapolations(Counted(10**9), 2e10) == ()
    ((size, value),) = law.extrapolations(Counted(70 * 10**9), 2e11)
    assert (size.quantity, value) == ("parameters", 70e9)
    ((tokens, _),) = law.extrapolations(Counted(10**9), 1.4e12)
    assert tokens.quantity == "tokens"
    ((flop, _),) = allocation("deepseek-2024").extrapolations(Counted(1, 1, 6e10), 1e12)
    assert flop.quantity == "flop"


def test_what_moves_a_loss_adds_in_quadrature() -> None:
    law, model = parametric("besiroglu-2024"), Counted(10**10)
    forecast = forecast_loss(law, model, 1e11, 0.5e11, 1.25e11)
    expected = law.loss(model, 1e11)
    assert forecast.estimate.value == pytest.approx(expected)
    assert [part.name for part in forecast.estimate.parts] == ["irreducible", "model size", "data"]
    throughput = forecast.sources["throughput"]
    assert throughput.above == pytest.approx(law.loss(model, 0.5e11) - expected)
    assert throughput.below == pytest.approx(expected - law.loss(model, 1.25e11))
    other = parametric("hoffmann-2022").loss(model, 1e11) - expected
    laws_differ = forecast.sources["disagreement of laws"]
    assert (laws_differ.above, laws_differ.below) == pytest.approx((max(0, other), max(0, -other)))
    above = math.hypot(*(each.above for each in forecast.sources.values()))
    assert forecast.estimate.quantiles.p90 == pytest.approx(expected + above)


def test_constants_move_a_loss_by_their_covariance() -> None:
    law, model = parametric("besiroglu-2024"), Counted(10**9)
    zero = tuple((0.0,) * 5 for _ in range(5))
    # Only E is uncertain, by a standard deviation of 0.03: p90 is 1.2816 of them above.
    only_e = ((0.03**2, 0.0, 0.0, 0.0, 0.0), *zero[1:])
    assert replace(law, covariance=only_e).deviation(model, 2e10) == pytest.approx(0.03 * 1.2816, rel=1e-4)
    # ln A and α that err together as ln N leave the loss of N parameters alone.
    log = math.log(1e9)
    tied = (zero[0], (0.0, log**2, 0.0, log, 0.0), zero[2], (0.0, log, 0.0, 1.0, 0.0), zero[4])
    assert replace(law, covariance=tied).deviation(model, 2e10) == pytest.approx(0, abs=1e-6)


def test_the_replication_is_certain_in_the_middle_of_its_runs_and_less_beyond() -> None:
    # Quantiles over 4,000 refits to resampled runs: 2.5266 to 2.5305 at 1B and 20B, 1.958 to 1.991 at 70B.
    law = parametric("besiroglu-2024")
    assert law.deviation(Counted(10**9), 2e10) == pytest.approx((2.5305 - 2.5266) / 2, rel=0.8)
    assert law.deviation(Counted(7 * 10**10), 1.4e12) == pytest.approx((1.9911 - 1.9584) / 2, rel=0.05)
    # The standard errors are those of the paper: 0.03 of E, 0.02 of both exponents.
    errors = [math.sqrt(law.covariance[place][place]) for place in (0, 3, 4)]
    assert errors == pytest.approx([0.03, 0.02, 0.02], rel=0.3)


def test_every_law_has_its_source_and_ranges() -> None:
    for law in laws().values():
        assert law.source in sources()
        assert law.ranges and all(each.least < each.most for each in law.ranges)
        assert law.data and law.tokenizer and law.title
    assert next(iter(laws())) == "besiroglu-2024"


def test_a_law_without_a_loss_uses_the_reference() -> None:
    assert loss_law(laws()["kaplan-2020"]).name == "besiroglu-2024"
    assert loss_law(laws()["hoffmann-2022"]).name == "hoffmann-2022"
    with pytest.raises(UnknownName, match=r"no scaling law 'chinchila'.*Known: besiroglu-2024"):
        laws()["chinchila"]

"""Stepwise selection: finds what made the data, leaves out what did not, minds collinear columns."""

from __future__ import annotations

import numpy as np
import pytest

from foretrain.learning.regression.terms import select

RANDOM = np.random.default_rng(7)
COLUMNS = RANDOM.normal(size=(60, 8))
NOISE = 0.1 * RANDOM.normal(size=60)


def test_a_line_by_hand() -> None:
    """Least squares through (0, 0), (1, 2), (2, 1), (3, 3): 0.3 + 0.8 x."""
    x = np.array([[0.0], [1.0], [2.0], [3.0]])
    found = select(x, np.array([0.0, 2.0, 1.0, 3.0]), enter=0.3, leave=0.3)
    assert found.coefficients.tolist() == pytest.approx([0.3, 0.8])
    assert found.freedom == 2
    # x'x about the mean is 5; the slope's variance is a fifth of the residuals'
    assert found.covariance[1, 1] == pytest.approx(1 / 5)


def test_finds_the_terms_that_made_the_data_and_their_coefficients() -> None:
    found = select(COLUMNS, 5 + 2 * COLUMNS[:, 1] - 3 * COLUMNS[:, 6] + NOISE, enter=0.01, leave=0.02)
    assert found.terms == (1, 6)
    assert found.coefficients.tolist() == pytest.approx([5, 2, -3], abs=0.1)


def test_pure_noise_keeps_little_but_the_constant() -> None:
    assert select(COLUMNS, NOISE, enter=1e-3, leave=2e-3).terms == ()


def test_a_term_that_entered_leaves_when_others_explain_it() -> None:
    """The textbook case: a proxy of a + b enters first, and is superfluous once both are in."""
    a, b = COLUMNS[:, 0], COLUMNS[:, 1]
    proxy = a + b + 0.8 * COLUMNS[:, 2]
    columns = np.column_stack([proxy, a, b])
    response = a + b + NOISE
    assert select(columns, response, most=1).terms == (0,)
    assert select(columns, response).terms == (1, 2)


def test_features_of_very_different_size_do_no_harm() -> None:
    scales = np.array([1e-9, 1e9, 1e-6, 1e6, 1.0, 1e3, 1e-3, 1e12])
    response = 2 * COLUMNS[:, 1] - 3 * COLUMNS[:, 6] + NOISE
    plain, scaled = select(COLUMNS, response), select(COLUMNS * scales, response)
    assert plain.terms == scaled.terms
    sizes = np.array([1.0, *scales[list(scaled.terms)]])
    assert (scaled.coefficients * sizes).tolist() == pytest.approx(plain.coefficients.tolist())


def test_copies_and_constants_never_enter_together() -> None:
    x = COLUMNS[:, :1]
    columns = np.hstack([x, 2 * x + 1, np.full((60, 1), 4.0), x])
    found = select(columns, 1 + x[:, 0] + NOISE)
    assert len(found.terms) == 1


def test_an_exact_fit_stops() -> None:
    assert select(COLUMNS, 1 + 2 * COLUMNS[:, 3]).terms == (3,)


def test_no_more_terms_than_allowed_or_than_leave_a_degree_of_freedom() -> None:
    response = COLUMNS @ np.arange(1.0, 9.0)
    assert len(select(COLUMNS, response, most=3).terms) == 3
    assert select(COLUMNS[:5], response[:5], enter=0.99, leave=0.99).freedom >= 1


def test_weights_are_repeats() -> None:
    """A row of weight 3 counts like three rows."""
    weights = np.where(np.arange(60) < 20, 3.0, 1.0)
    response = 1 + COLUMNS[:, 0] + NOISE
    weighted = select(COLUMNS[:, :1], response, weights)
    repeated = np.repeat(np.arange(60), weights.astype(int))
    plain = select(COLUMNS[repeated, :1], response[repeated])
    assert weighted.coefficients.tolist() == pytest.approx(plain.coefficients.tolist())


def test_left_out_residuals_are_those_of_a_fit_without_the_group() -> None:
    response = 1 + COLUMNS[:, 0] + NOISE
    groups = np.arange(60) // 6
    found = select(COLUMNS[:, :1], response)
    kept = groups != 4
    without = select(COLUMNS[kept, :1], response[kept])
    expected = response[~kept] - without.coefficients[0] - without.coefficients[1] * COLUMNS[~kept, 0]
    assert found.left_out(groups)[~kept].tolist() == pytest.approx(expected.tolist())


def test_thresholds_that_would_go_round_in_circles_are_refused() -> None:
    with pytest.raises(ValueError, match="enter <= leave"):
        select(COLUMNS, NOISE, enter=0.1, leave=0.05)

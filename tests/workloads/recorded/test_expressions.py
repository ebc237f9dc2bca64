"""Sizes as expressions of named sizes."""

from __future__ import annotations

import pytest

from foretrain.workloads.recorded.template import Fitter, NoExpression, NotWhole, evaluate

POINTS = ({"batch": 3, "width": 10}, {"batch": 5, "width": 14}, {"batch": 7, "width": 22})


@pytest.mark.parametrize(
    ("values", "expression"),
    [
        ((8, 8, 8), 8),
        ((30, 70, 154), [[1, 1, "batch", "width"]]),
        ((5, 7, 11), [[1, 2, "width"]]),
        ((33, 75, 161), [[1, 1, "batch"], [1, 1, "batch", "width"]]),
        ((10, 16, 22), [[3, 1, "batch"], [1, 1]]),
        ((5, 16, 53), ["ceil", 64, [1, 1, "batch", "width", "width"]]),
    ],
)
def test_an_expression_is_found_through_its_values(values: tuple[int, ...], expression: object) -> None:
    assert Fitter(POINTS).fit(values) == expression
    assert tuple(evaluate(expression, point) for point in POINTS) == values


def test_values_without_an_expression_are_refused() -> None:
    with pytest.raises(NoExpression):
        Fitter(POINTS).fit((2, 3, 1000003))


def test_a_size_that_is_not_whole_is_refused() -> None:
    assert evaluate([[1, 2, "width"], [1, 2]], {"width": 3}) == 2  # halves add up to a whole
    with pytest.raises(NotWhole):
        evaluate([[1, 2, "width"]], {"width": 3})

"""A framework's constants: by hand, and found again from steps they were used to make."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from calibration.frameworks import Framework, Holding, LayoutParts, StageParts, fit_framework, step_seconds
from calibration.frameworks import fit_held_activations as fit_held


def _parts(
    products: tuple[float, ...] = (1.0,), launching: float = 0.0, exchanging: float = 0.0, **changes: Any
) -> LayoutParts:
    each = np.array(products)
    stages = StageParts(
        products=each,
        others=0 * each,
        outside=0 * each,
        exchanging=0 * each + exchanging,
        launching=0 * each + launching,
        exchanges=0 * each + 10,
    )
    parts = LayoutParts(stages, 4, 1, 1, 8, 1, reducing=5.0, updating=0.5)
    return replace(parts, **changes)


def test_micro_batches_follow_each_other_and_the_update_comes_last() -> None:
    assert step_seconds(_parts(), Framework()) == 4 * 1.0 + 0.5


def test_a_pipeline_is_filled_once_and_then_goes_at_the_pace_of_its_slowest_stage() -> None:
    assert step_seconds(_parts((1.0, 3.0)), Framework()) == (1 + 3) + 3 * 3 + 0.5


def test_the_host_sets_the_pace_where_it_is_slower() -> None:
    at = Framework(launching=2.0, exchange_seconds=0.1)
    assert step_seconds(_parts(launching=1.0), at) == pytest.approx(4 * (2 * 1 + 10 * 0.1) + 0.5)


def test_replicas_reduce_their_gradients() -> None:
    assert step_seconds(_parts(replicas=2), Framework(reducing=2.0)) == 4 + 10 + 0.5


def test_exchanges_across_nodes_have_a_factor_of_their_own() -> None:
    at = Framework(exchanging_on_node=1.0, exchanging_across=3.0)
    assert step_seconds(_parts(exchanging=1.0, tensor=8), at) == 4 * 2 + 0.5
    assert step_seconds(_parts(exchanging=1.0, tensor=16), at) == 4 * 4 + 0.5


def test_exchanges_beside_products_are_partly_hidden() -> None:
    assert step_seconds(_parts((3.0,), exchanging=4.0), Framework(overlaps=True)) == 4 * 5.0 + 0.5


def test_constants_are_found_again() -> None:
    truth = Framework(products=1.5, exchanging_on_node=0.7, launching=3.0)
    layouts = [
        _parts((products,), launching, exchanging, tensor=4)
        for products in (0.2, 1.0, 5.0)
        for launching in (0.1, 1.0)
        for exchanging in (0.0, 0.5, 2.0)
    ]
    timed = [(parts, step_seconds(parts, truth)) for parts in layouts]
    free = ("products", "exchanging_on_node", "launching")
    found = fit_framework(timed, Framework(launching=1.5), free)
    assert [getattr(found, name) for name in free] == pytest.approx([1.5, 0.7, 3.0], rel=1e-2)
    assert found.reducing == 1.0


def test_kept_activations_and_the_limit_are_found_again() -> None:
    holdings = [(Holding(10.0 * n, 2.0 * n), Holding(20.0 * n, 2.0 * n)) for n in range(1, 8)]
    seen = [(first, full, 16.0 * n if n <= 4 else None) for n, (first, full) in enumerate(holdings, start=1)]
    held = fit_held(seen)
    assert held.kept == pytest.approx(3.0, rel=1e-3)
    assert held.memory(holdings[0][0]) == pytest.approx(16.0, rel=1e-3)
    assert held.fits(holdings[3][1])
    assert not held.fits(holdings[4][1])

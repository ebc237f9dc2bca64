"""FP8 by compute capability: products of blocks with scales, copies that need no transposing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrain.facts.devices import device
from foretrain.prediction.operators.matrix import MatrixModel
from foretrain.prediction.operators.pricing import WorkTable
from foretrain.prediction.operators.streaming import without_transposes
from foretrain.testing.works import product
from foretrain.workloads.ops import Direction, Kind, Work
from foretrain.workloads.rules.fp8 import SCALED_BLOCKS, TRANSPOSED


@pytest.mark.parametrize(("name", "factor"), [("l40s", 1.56), ("h200-sxm", 1.08), ("b200", 1.0)])
def test_products_of_blocks_take_longer_where_that_was_measured(name: str, factor: float) -> None:
    one = product(Kind.LINEAR, "float8_e4m3fn", 1, 8192, 8192, 8192)
    many = replace(one, dims={**one.dims, SCALED_BLOCKS: 1})
    seconds = MatrixModel().seconds(WorkTable((one, many)), device(name))
    assert seconds[1] == pytest.approx(factor * seconds[0])


def test_blackwell_stores_no_transposes_of_tensors_with_one_scale() -> None:
    """A cast of n elements: 2n bytes read and 2n written on Hopper, n on Blackwell; blocks 2n on both."""
    n = 10**6
    dims = {"elements": n, TRANSPOSED: n}
    cast = Work(Kind.COPY, Direction.FORWARD, dims, "bfloat16", 0.0, 2.0 * n, 2.0 * n)
    table = WorkTable((cast, replace(cast, dims={"elements": n})))
    assert without_transposes(table, device("h100-sxm")).write_bytes.tolist() == [2 * n, 2 * n]
    assert without_transposes(table, device("gb200")).write_bytes.tolist() == [n, 2 * n]

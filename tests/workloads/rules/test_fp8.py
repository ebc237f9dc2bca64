"""Casts of FP8 by the scaling of its values, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.small_models import graph

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import device
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.workloads.graph import Graph
from foretrain.workloads.ops import Direction, Kind, Work
from foretrain.workloads.options import FP8_SCALINGS, WorkloadRequest
from foretrain.workloads.rules import operators
from foretrain.workloads.rules.fp8 import TRANSPOSED
from foretrain.workloads.workload import description, graph_at, workload_of


def works(traced: Graph, *kinds: Kind) -> list[Work]:
    return [op.work for op in operators(traced) if op.work.kind in kinds]


def _moved(step: Graph) -> float:
    """Bytes of all copies of a step and of the reductions before them."""
    return sum(work.read_bytes + work.write_bytes for work in works(step, Kind.COPY, Kind.REDUCTION))


def test_fp8_linears_read_half_of_bf16_after_a_cast() -> None:
    half, eighth = graph("mlp", precision="bf16"), graph("mlp", precision="fp8")
    for two_bytes, one_byte in zip(works(half, Kind.LINEAR), works(eighth, Kind.LINEAR), strict=True):
        assert one_byte.dtype == "float8_e4m3fn"
        assert one_byte.read_bytes == two_bytes.read_bytes / 2
    assert len(works(eighth, Kind.COPY)) > len(works(half, Kind.COPY))


def test_fp8_casts_every_tensor_once() -> None:
    """Inputs and weights forward, gradients backward: each read in two bytes, written twice in one."""
    half, eighth = graph("mlp", precision="bf16"), graph("mlp", precision="fp8")
    more = sum(w.read_bytes for w in works(eighth, Kind.COPY)) - sum(
        w.read_bytes for w in works(half, Kind.COPY)
    )
    expected = 0
    for work in works(eighth, Kind.LINEAR):
        tokens, into, out = (work.dims[name] for name in ("tokens", "in", "out"))
        if work.direction is Direction.FORWARD:
            expected += tokens * into + into * out
        elif work.direction is Direction.INPUT_GRADIENT:
            expected += tokens * out
    assert more == 2 * expected


def test_fp8_in_fused_code_casts_weights_only() -> None:
    """What computes activations writes them in one byte at once."""
    half, fused = (graph("mlp", precision=precision, compile=True) for precision in ("bf16", "fp8"))
    more = len(works(fused, Kind.COPY)) - len(works(half, Kind.COPY))
    forward = [work for work in works(fused, Kind.LINEAR) if work.direction is Direction.FORWARD]
    assert more == len(forward)
    read = sum(w.read_bytes for w in works(fused, Kind.COPY)) - sum(
        w.read_bytes for w in works(half, Kind.COPY)
    )
    assert read == 2 * sum(work.dims["in"] * work.dims["out"] for work in forward)


def test_scaling_decides_what_a_cast_moves() -> None:
    """n elements: 2n bytes read and 2n written; current reads 2n more and writes a maximum of 4 bytes; blocks
    write one byte of scales for 32 elements of each copy."""
    steps = {name: graph("mlp", precision="fp8", fp8_scaling=name) for name in FP8_SCALINGS}
    casts = [work for work in works(steps["delayed"], Kind.COPY) if TRANSPOSED in work.dims]
    elements = sum(work.dims["elements"] for work in casts)
    assert [work.dims["elements"] for work in casts] == [4 * 8, 8 * 16, 4 * 16, 16 * 4, 4 * 4]
    assert sum(work.read_bytes + work.write_bytes for work in casts) == 4 * elements
    delayed = _moved(steps["delayed"])
    assert _moved(steps["current"]) - delayed == 2 * elements + 4 * len(casts)
    assert _moved(steps["block"]) - delayed == pytest.approx(2 * elements / 32)
    assert _moved(graph("mlp", precision="fp8")) == delayed  # the default


def test_the_scale_of_a_tensor_is_known_after_its_last_value_only() -> None:
    """Behind fused code delayed scaling casts weights alone, current and block activations, too; only the
    maxima of weights are then found in passes of their own."""
    fused = {name: graph("mlp", precision="fp8", fp8_scaling=name, compile=True) for name in FP8_SCALINGS}
    casts = {name: len(works(step, Kind.COPY)) for name, step in fused.items()}
    maxima = {name: len(works(step, Kind.REDUCTION)) for name, step in fused.items()}
    weights, activations = 2, 3  # two layers; the first has no gradient of its inputs
    assert casts["current"] == casts["block"] == casts["delayed"] + activations
    assert maxima["current"] - maxima["delayed"] == weights
    assert maxima["block"] == maxima["delayed"]


@pytest.mark.parametrize("name", ["h100-sxm", "gb200", "l40s"])
@pytest.mark.parametrize("compiled", [False, True])
def test_no_scaling_is_faster_than_delayed(name: str, compiled: bool) -> None:
    model, on = OperatorCostModel(), device(name)
    seconds = {
        scaling: float(
            model.price(
                graph("mlp", precision="fp8", fp8_scaling=scaling, compile=compiled), on
            ).priced.seconds.sum()
        )
        for scaling in FP8_SCALINGS
    }
    assert seconds["delayed"] <= min(seconds.values())


def test_products_of_blocks_read_their_scales() -> None:
    delayed, block = (graph("mlp", precision="fp8", fp8_scaling=name) for name in ("delayed", "block"))
    for one, many in zip(works(delayed, Kind.LINEAR), works(block, Kind.LINEAR), strict=True):
        assert many.read_bytes == pytest.approx(one.read_bytes * 33 / 32)
        assert many.flop == one.flop


def test_frozen_layers_need_no_transposes_of_what_they_read() -> None:
    """Transposed inputs and gradients are for the gradient of weights; here the first layer is frozen."""
    whole = graph("mlp", precision="fp8", weights="bf16", master_weights=True)
    frozen = replace(whole, trained=whole.trained[2:])
    written = {
        name: [work.write_bytes for work in works(step, Kind.COPY) if work.dims["elements"] == 4 * 8]
        for name, step in (("whole", whole), ("frozen", frozen))
    }
    assert written["whole"][-1] == 2 * 4 * 8 and written["frozen"][-1] == 4 * 8


def test_all_scalings_share_one_recorded_step() -> None:
    steps = {}
    for name in FP8_SCALINGS:
        workload = workload_of(
            WorkloadRequest("gpt2-small", batch=2, seq_len=64, precision="fp8", fp8_scaling=name)
        )
        steps[name] = graph_at(workload, 4)
        assert steps[name].options.fp8_scaling == name
        assert description(workload, 2, 128)["fp8_scaling"] == name
    assert steps["delayed"].calls == steps["block"].calls
    half = workload_of(WorkloadRequest("gpt2-small", batch=2, precision="bf16"))
    assert "fp8_scaling" not in description(half, 2, 128)


def test_a_scaling_is_for_fp8_alone() -> None:
    with pytest.raises(InvalidRequest, match="`fp8_scaling` block is for `precision` fp8, not bf16"):
        workload_of(WorkloadRequest("mnist-cnn", precision="bf16", fp8_scaling="block"))
    with pytest.raises(InvalidRequest, match="fp8_scaling 'row' is not one of delayed, current, block"):
        workload_of(WorkloadRequest("mnist-cnn", precision="fp8", fp8_scaling="row"))

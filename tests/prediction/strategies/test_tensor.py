"""Tensor parallelism: a block by hand, conservation and counts of exchanges on real models."""

from __future__ import annotations

import time
from collections import Counter
from functools import cache

import pytest
from tests.support.divided_graphs import check_parameters, check_shapes, graph, matrix_flop, role_bytes

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import device
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.memory.estimate import estimate_memory
from foretrain.prediction.strategies.program import Axis, Program, compile_program
from foretrain.prediction.strategies.tensor import feasible_tensor_degrees, tensor_flow, tensor_parallel
from foretrain.workloads.fused_kernels import PRODUCTS
from foretrain.workloads.graph import Graph, Phase, Role
from foretrain.workloads.ops import Kind
from foretrain.workloads.rules import operators

LAYERS = {"gpt2": 12, "llama3.2-1b": 16}


@cache
def program(model: str, degree: int, sequence_parallel: bool = False, **options: object) -> Program:
    """That model divided."""
    return tensor_parallel(Program(graph(model, **options)), degree, sequence_parallel)


def counts(of: Program) -> Counter[tuple[str, str]]:
    """How often each collective of a size worth a layer happens, by the phase of the call it comes after."""
    layer = max(exchange.bytes for exchange in of.exchanges) / 4
    counted: Counter[tuple[str, str]] = Counter()
    for exchange in of.exchanges:
        call = of.graph.calls[exchange.after]
        if exchange.bytes > layer:
            counted[exchange.verb, "recomputation" if call.recomputed else call.phase] += 1
    return counted


MODELS = [
    ("gpt2", {}),
    ("gpt2", {"attention": "eager", "precision": "bf16"}),
    ("gpt2", {"checkpoint_activations": True, "precision": "bf16"}),
    ("gpt2", {"compile": True}),
    ("bert-base", {}),
    ("t5-small", {}),
    ("t5-small", {"attention": "eager"}),
    ("llama3.2-1b", {"seq_len": 512, "precision": "bf16"}),
]


@pytest.mark.parametrize(("model", "options"), MODELS)
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_work_is_conserved_and_shapes_fit(
    model: str, options: dict[str, object], sequence_parallel: bool
) -> None:
    whole = graph(model, **options)
    divided = program(model, 4, sequence_parallel, **options).graph
    padding = 4 / min(
        whole.specs[buffer.spec].shape[0] for buffer in whole.buffers if "tokens" in buffer.name
    )
    assert 1.0 <= 4 * matrix_flop(divided) / matrix_flop(whole) <= 1.0 + padding
    assert whole.parameters / divided.parameters > 3.85
    for role in (Role.OPTIMIZER_STATE, Role.GRADIENT):
        assert role_bytes(whole, role) / role_bytes(divided, role) > 3.85
    check_shapes(divided)
    check_parameters(divided)


@pytest.mark.parametrize("model", ["gpt2", "llama3.2-1b"])
@pytest.mark.parametrize("options", [{}, {"attention": "eager"}, {"precision": "bf16"}])
def test_two_sums_a_block_forward_and_two_backward(model: str, options: dict[str, object]) -> None:
    counted = counts(program(model, 4, seq_len=512, **options))
    blocks = LAYERS[model]
    assert counted == {
        (Verb.ALL_REDUCE, Phase.FORWARD): 2 * blocks + 1,  # and the embedding
        (Verb.ALL_REDUCE, Phase.BACKWARD): 2 * blocks + 1,  # and the output layer
    }


def test_recomputation_sums_again() -> None:
    counted = counts(program("gpt2", 4, checkpoint_activations=True, precision="bf16"))
    assert counted[Verb.ALL_REDUCE, "recomputation"] == 24


def test_sums_travel_in_half_precision() -> None:
    divided = program("gpt2", 4, precision="bf16", seq_len=512)
    backward = [e for e in divided.exchanges if divided.graph.calls[e.after].phase is Phase.BACKWARD]
    assert {exchange.bytes for exchange in backward} == {2 * 512 * 768 * 2.0}


def test_exchanges_lie_between_what_they_need_and_what_needs_them() -> None:
    for sequence_parallel in (False, True):
        divided = program("gpt2", 4, sequence_parallel, precision="bf16", checkpoint_activations=True)
        assert all(-1 <= e.after < e.before <= len(divided.graph.calls) for e in divided.exchanges)
        assert {e.axis for e in divided.exchanges} == {Axis.TENSOR}
        assert divided.degrees == {Axis.TENSOR: 4}


def test_sequence_parallelism_gathers_and_scatters_instead() -> None:
    counted = counts(program("llama3.2-1b", 4, True, seq_len=512))
    assert counted == {
        (Verb.REDUCE_SCATTER, Phase.FORWARD): 33,
        (Verb.ALL_GATHER, Phase.FORWARD): 33,
        (Verb.REDUCE_SCATTER, Phase.BACKWARD): 33,
        (Verb.ALL_GATHER, Phase.BACKWARD): 66,  # the gradients, and the kept inputs once more
    }


def test_what_is_gathered_is_there_before_its_first_reader() -> None:
    """Fusion moves weights' gradients after the others; neither may start without the gathered gradient."""
    weights = {"precision": "bf16", "weights": "bf16", "master_weights": True, "gradients": "fp32"}
    executed = compile_program(program("llama3.2-1b", 4, True, seq_len=512, framework="megatron", **weights))
    calls, hidden_behind = executed.graph.calls, Counter[tuple[str, int]]()
    for each in executed.exchanges:
        if each.verb is Verb.ALL_GATHER and calls[each.after].phase is Phase.BACKWARD:
            between = calls[each.after + 1 : each.before]
            products = sum(call.name in ("aten.mm", PRODUCTS) for call in between)
            hidden_behind[calls[each.before].module.split(".")[-1], products] += 1
    blocks = LAYERS["llama3.2-1b"]
    rows = {("down", 0): blocks, ("output", 0): blocks}
    columns = {("up", 1): blocks, ("value", 1): blocks}  # gathered again beside the input's gradient
    assert {**rows, **columns}.items() <= hidden_behind.items()


@pytest.mark.parametrize(("scaling", "forward", "gradient"), [("current", 0.5, 0.5), ("block", 0.516, 1.031)])
def test_transformer_engine_gathers_in_eight_bits(scaling: str, forward: float, gradient: float) -> None:
    options = {"seq_len": 512, "framework": "megatron"}
    half = program("llama3.2-1b", 4, True, precision="bf16", **options)
    eight = program("llama3.2-1b", 4, True, precision="fp8", fp8_scaling=scaling, **options)
    gathers = [
        [each for each in of.exchanges if each.verb is Verb.ALL_GATHER and each.bytes > 1e5]
        for of in (half, eight)
    ]
    shares = Counter(round(b.bytes / a.bytes, 3) for a, b in zip(*gathers, strict=True))
    blocks = LAYERS["llama3.2-1b"]
    outside = 3  # the output layer, which stays in BF16, and the gradient of the embedding
    assert shares == Counter({1.0: outside}) + Counter({forward: 4 * blocks}) + Counter(
        {gradient: 2 * blocks}
    )


def test_sequence_parallelism_divides_norms_too() -> None:
    def norms(of: Graph) -> float:
        return sum(op.work.read_bytes for op in operators(of) if op.work.kind is Kind.NORMALISATION)

    whole, plain = norms(graph("gpt2")), norms(program("gpt2", 4).graph)
    assert plain == whole
    assert norms(program("gpt2", 4, True).graph) < 0.3 * whole


def test_a_block_by_hand() -> None:
    """GPT-2's first block over 4 devices: 2,304 outputs become 576, 12 heads become 3."""
    divided = program("gpt2", 4).graph
    first = [
        op.work
        for op in operators(divided)
        if op.module.startswith("blocks.0.") and op.phase is Phase.FORWARD
    ]
    layers = [work.dims for work in first if work.kind is Kind.LINEAR]
    assert [(dims["in"], dims["out"]) for dims in layers] == [(768, 576), (192, 768), (768, 768), (768, 768)]
    heads = [work.dims["heads"] for work in first if work.kind is Kind.ATTENTION]
    assert heads == [3]


def test_memory_falls_with_the_degree() -> None:
    on = device("h100-sxm")
    options = {"seq_len": 512, "precision": "bf16"}
    sizes = [estimate_memory(graph("llama3.2-1b", **options), on).bytes]
    sizes += [
        estimate_memory(program("llama3.2-1b", 8, sp, **options).graph, on).bytes for sp in (False, True)
    ]
    assert sizes[1] < sizes[0] / 4
    assert sizes[2] < sizes[1]


def test_an_mlp_alternates() -> None:
    divided = program("voice-linear", 4)
    assert matrix_flop(graph("voice-linear")) == pytest.approx(4 * matrix_flop(divided.graph), rel=1e-3)
    check_shapes(divided.graph)


def test_vision_transformer_keeps_its_convolution() -> None:
    divided = program("vit-b-16", 4)
    assert any("convolutions" in note for note in divided.notes)
    assert matrix_flop(graph("vit-b-16")) == pytest.approx(4 * matrix_flop(divided.graph), rel=0.02)


def test_degree_one_changes_nothing() -> None:
    whole = Program(graph("gpt2"))
    assert tensor_parallel(whole, 1) is whole


def test_degrees_that_work() -> None:
    assert feasible_tensor_degrees(graph("gpt2"), 64) == (1, 2, 3, 4, 6, 12)
    assert feasible_tensor_degrees(graph("llama3.2-1b", seq_len=512), 64) == (
        1,
        2,
        4,
        8,
    )  # its 8 key-value heads
    assert feasible_tensor_degrees(graph("cifar-resnet20"), 8) == (1,)


def test_degrees_that_do_not_divide_are_refused_with_what_would() -> None:
    with pytest.raises(InvalidRequest, match=r"12 attention heads.*nearest degrees that do: 4 and 6"):
        program("gpt2", 5)
    with pytest.raises(InvalidRequest, match=r"8 key-value heads"):
        program("llama3.2-1b", 16, seq_len=512)
    with pytest.raises(InvalidRequest, match="requires linear layers"):
        program("cifar-resnet20", 2)
    with pytest.raises(InvalidRequest, match="at least 1"):
        program("gpt2", 0)
    with pytest.raises(InvalidRequest, match="already"):
        tensor_parallel(program("gpt2", 2), 2)


def test_a_vocabulary_is_padded() -> None:
    divided = program("gpt2", 4)
    assert any("50257 to 50260" in note for note in divided.notes)
    table = next(b for b in divided.graph.buffers if b.name == "tokens.weight")
    assert divided.graph.specs[table.spec].shape == (12565, 768)


def test_one_walk_serves_all_degrees_and_is_quick() -> None:
    whole = graph("llama3.2-1b", seq_len=512)
    start = time.process_time()
    for degree in (2, 4, 8):
        tensor_parallel(Program(whole), degree)
    assert time.process_time() - start < 1.0
    assert tensor_flow(whole) is tensor_flow(whole)


@pytest.mark.parametrize("half_weights", [False, True])
def test_adafactors_rows_and_columns_are_divided_with_their_matrix(half_weights: bool) -> None:
    options: dict[str, object] = {
        "optimizer": "adafactor", "precision": "bf16", "seq_len": 64, "master_weights": half_weights,
    }  # fmt: skip
    whole, divided = graph("gpt2", **options), program("gpt2", 4, **options).graph
    states = [index for index, buffer in enumerate(whole.buffers) if buffer.role is Role.OPTIMIZER_STATE]
    parameters = {b.name: i for i, b in enumerate(whole.buffers) if b.role is Role.PARAMETER}
    for index in states:
        owner = parameters[whole.buffers[index].name]
        before, after = (g.specs[g.buffers[index].spec].shape for g in (whole, divided))
        matrix, share = (g.specs[g.buffers[owner].spec].shape for g in (whole, divided))
        assert after == tuple(
            kept if size == full else size for size, full, kept in zip(before, matrix, share, strict=True)
        )

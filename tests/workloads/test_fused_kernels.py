"""Kernels that frameworks fuse, on one block of a transformer whose tensors can be counted by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from foretrain.workloads.example import Example
from foretrain.workloads.executed import fuse_executed
from foretrain.workloads.fused_kernels import FUSED, PRODUCTS, fuse_kernels
from foretrain.workloads.graph import Call, Graph, Phase, Role
from foretrain.workloads.ops import Direction, Kind
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.rules import operators
from foretrain.workloads.tracing.step import trace

BATCH, TOKENS, WIDTH, HEADS, INNER, VOCABULARY = 2, 16, 32, 4, 64, 96
ROWS = BATCH * TOKENS
_OPTIONS = ResolvedOptions(
    precision="bf16", weights="bf16", master_weights=True, gradients="fp32", attention="flash",
    optimizer="adamw-fused", framework="megatron",
)  # fmt: skip


class RMSNorm(nn.Module):
    """As most models write it: seven operators."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (p(x).view(BATCH, TOKENS, HEADS, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        result: Tensor = self.o(out.transpose(1, 2).reshape(x.shape))
        return result


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down, self.act = nn.Linear(INNER, WIDTH, bias=False), nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(self.act(self.gate(x)) * self.up(x))
        return result


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.attention, self.second, self.mlp = RMSNorm(), Attention(), RMSNorm(), Mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        result: Tensor = x + self.mlp(self.second(x))
        return result


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.blocks = nn.Embedding(VOCABULARY, WIDTH), nn.ModuleList([Block(), Block()])
        self.norm, self.head = RMSNorm(), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x)).float()
        return nn.functional.cross_entropy(logits.view(-1, VOCABULARY), tokens.view(-1))


def _trace(options: ResolvedOptions = _OPTIONS) -> Graph:
    tokens = torch.zeros(BATCH, TOKENS, dtype=torch.int64)
    return trace(Example(Model(), (tokens,), None, samples=BATCH, tokens=ROWS), options)


@pytest.fixture(scope="module")
def eager() -> Graph:
    return _trace()


@pytest.fixture(scope="module")
def fused(eager: Graph) -> Graph:
    return fuse_executed(eager).graph


def _calls(graph: Graph, module: str, phase: Phase) -> list[Call]:
    kernels = (each for each in graph.calls if each.nature != "view")
    return [each for each in kernels if each.module == module and each.phase is phase]


def _bytes(graph: Graph, buffers: tuple[int, ...]) -> int:
    return sum(graph.buffer_bytes(buffer) for buffer in buffers)


def test_a_norm_is_one_kernel_that_reads_its_input_and_writes_its_output_and_statistics(
    fused: Graph,
) -> None:
    (kernel,) = _calls(fused, "blocks.0.second", Phase.FORWARD)
    assert _bytes(fused, kernel.reads) == 2 * ROWS * WIDTH + 2 * WIDTH
    assert _bytes(fused, kernel.writes) == 2 * ROWS * WIDTH + 4 * ROWS


def test_its_backward_pass_reads_input_gradient_and_statistics_and_adds_the_residual(fused: Graph) -> None:
    (kernel,) = _calls(fused, "blocks.0.second", Phase.BACKWARD)
    stream = 2 * ROWS * WIDTH
    weight, master_gradient = 2 * WIDTH, 4 * WIDTH
    assert _bytes(fused, kernel.reads) == 3 * stream + 4 * ROWS + weight + master_gradient


def test_gate_and_up_are_one_product_and_their_activation_one_kernel(fused: Graph) -> None:
    names = Counter(
        call.name for call in fused.calls if "blocks.1.mlp" in call.module and call.phase == "forward"
    )
    assert names[PRODUCTS] == 1 and names[FUSED] == 1 and names["aten.mm"] == 1
    ops = [op for op in operators(fused) if op.name == PRODUCTS and "blocks.1.mlp" in op.module]
    by_direction = {op.work.direction: op.work for op in ops}
    assert set(by_direction) == {Direction.FORWARD, Direction.INPUT_GRADIENT, Direction.WEIGHT_GRADIENT}
    for work in by_direction.values():
        assert work.kind is Kind.LINEAR and work.flop == 2 * ROWS * WIDTH * 2 * INNER
        assert {name: work.dims[name] for name in ("tokens", "in", "out")} == {
            "tokens": ROWS, "in": WIDTH, "out": 2 * INNER,
        }  # fmt: skip


def test_queries_keys_and_values_are_one_product_without_sums_of_gradients(
    eager: Graph, fused: Graph
) -> None:
    def sums(graph: Graph) -> int:
        own = [call for call in graph.calls if "attention" in call.module and call.phase == "backward"]
        return sum(call.name == "aten.add" for call in own)

    assert sums(eager) == 2 * 2 and sums(fused) == 0


def test_weight_gradients_are_added_up_by_their_products(eager: Graph, fused: Graph) -> None:
    """Only the embedding, whose gradient no product computes, keeps its sum."""
    assert sum(call.name == "aten.add_" for call in eager.calls) > 1
    assert sum(call.name == "aten.add_" for call in fused.calls) == 1


def test_the_loss_reads_the_logits_twice_and_never_stores_probabilities(fused: Graph) -> None:
    logits = 2 * ROWS * VOCABULARY
    wide = [b for b in fused.buffers if fused.specs[b.spec].bytes > logits and b.role is Role.ACTIVATION]
    assert not wide
    kernels = [call for call in fused.calls if call.settings.get("part") == "loss"]
    assert sum(_bytes(fused, call.reads) // logits for call in kernels) == 2


def test_work_of_products_and_attention_is_conserved(eager: Graph, fused: Graph) -> None:
    def flop(graph: Graph) -> float:
        kinds = (Kind.LINEAR, Kind.MATMUL, Kind.ATTENTION)
        return sum(op.work.flop for op in operators(graph) if op.work.kind in kinds)

    assert flop(fused) == flop(eager)


def test_no_kernel_reads_what_is_not_there_yet(fused: Graph) -> None:
    for index, call in enumerate(fused.calls):
        assert all(fused.buffers[buffer].born <= index <= fused.buffers[buffer].dies for buffer in call.reads)


def test_no_kernel_spans_an_exchange(eager: Graph) -> None:
    """An exchange in the middle of a norm splits its kernel."""
    norm = [
        i
        for i, call in enumerate(eager.calls)
        if call.module == "blocks.0.second" and call.phase == "forward"
    ]
    step = fuse_executed(eager, [(norm[2], norm[3])])
    assert step.place[norm[2]] < step.place[norm[3]]
    assert fuse_executed(eager).place[norm[2]] == fuse_executed(eager).place[norm[3]]


def test_a_group_that_is_not_fused_stays_as_it_was(eager: Graph) -> None:
    only = fuse_kernels(eager, operators(eager), frozenset({"norm"})).graph
    assert {call.settings["part"] for call in only.calls if call.name == FUSED} == {"norm"}
    assert not any(call.name == PRODUCTS for call in only.calls)


def test_a_model_without_attention_stays_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    graph = trace(
        Example(model, (torch.zeros(3, 4),), None, samples=3), ResolvedOptions(framework="megatron")
    )
    assert fuse_executed(graph).graph is graph


@pytest.mark.parametrize(("framework", "products"), [("pytorch", 0), ("megatron", 1)])
def test_megatron_recomputes_the_last_layer_of_a_block_too(framework: str, products: int) -> None:
    """PyTorch stops when it has all that the backward pass needs, which the output is not."""
    options = ResolvedOptions(framework=framework, checkpoint_activations=True)
    graph = _trace(options)
    again = [call for call in graph.calls if call.recomputed and call.module == "blocks.0.mlp.down"]
    assert sum(call.name in ("aten.mm", "aten.addmm") for call in again) == products


def test_fp8_casts_what_no_fused_kernel_wrote_and_weights_once_per_step() -> None:
    """Norms and activations write one byte; attention's output and the gradients of outputs are cast."""
    eager = _trace(replace(_OPTIONS, precision="fp8"))
    ops = [op for op in operators(fuse_executed(eager).graph) if op.work.kind is Kind.COPY]
    block = Counter((op.module, op.phase) for op in ops if op.module.startswith("blocks.1"))
    assert block["blocks.1.attention.o", Phase.FORWARD] == 1
    assert block["blocks.1.mlp.down", Phase.BACKWARD] == 1
    assert not any(module.endswith(("mlp.gate", "mlp.down")) for module, phase in block if phase == "forward")
    matrices = 2 * (4 * WIDTH * WIDTH + 3 * WIDTH * INNER)
    copies = [op.work for op in operators(eager) if op.name == "aten._foreach_copy_"]
    assert copies[-1].read_bytes == copies[-1].write_bytes == 2 * matrices


def test_transformer_engine_leaves_layers_outside_blocks_in_bf16() -> None:
    graph = fuse_executed(_trace(replace(_OPTIONS, precision="fp8"))).graph
    types = {op.module.split(".")[0]: op.work.dtype for op in operators(graph) if op.work.kind is Kind.LINEAR}
    assert types == {"blocks": "float8_e4m3fn", "head": "bfloat16"}


@pytest.mark.parametrize(
    ("framework", "loss", "kernels"), [("pytorch", "fused", 2), ("megatron", "eager", 0)]
)
def test_the_loss_is_fused_or_not_whatever_the_framework(framework: str, loss: str, kernels: int) -> None:
    graph = fuse_executed(_trace(replace(_OPTIONS, framework=framework, loss=loss))).graph
    assert sum(call.settings.get("part") == "loss" for call in graph.calls) == kernels


class EagerAttention(nn.Module):
    """Scores, scaled and softened, with queries, keys and values in one."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x)
        scores = torch.bmm(qkv, qkv.transpose(1, 2)) / WIDTH**0.5
        return torch.bmm(torch.softmax(scores, dim=-1), qkv)


@pytest.mark.parametrize(("precision", "kernels"), [("bf16", 2), ("tf32", 0), ("fp32", 0)])
def test_megatrons_softmax_is_fused_in_half_precision_alone(precision: str, kernels: int) -> None:
    model = nn.Sequential(EagerAttention(), EagerAttention())
    options = ResolvedOptions(precision=precision, framework="megatron-deepspeed", attention="eager")
    example = Example(model, (torch.zeros(BATCH, TOKENS, WIDTH),), None, samples=BATCH)
    graph = fuse_executed(trace(example, options)).graph
    parts = [call.settings.get("part") for call in graph.calls if call.phase is Phase.FORWARD]
    assert parts.count("softmax") == kernels


class _MaskedInPlace(nn.Module):
    """As Megatron masks scores without its kernel: in place, on a view."""

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.bmm(x, x.transpose(1, 2)).view(BATCH, 1, TOKENS, TOKENS)
        hides = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=x.device)
        result: Tensor = scores.masked_fill_(hides, -1e4).softmax(-1).view(BATCH, TOKENS, TOKENS) @ x
        return result


def test_what_the_engine_copies_to_mask_a_view_in_place_is_no_kernel_of_the_framework() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), _MaskedInPlace())
    example = Example(model, (torch.zeros(BATCH, TOKENS, WIDTH),), torch.mean, BATCH)
    options = ResolvedOptions(precision="fp32", framework="megatron-deepspeed")
    run = fuse_executed(trace(example, options)).graph
    outside = Counter(call.name for call in run.calls if call.phase is Phase.BACKWARD and not call.module)
    assert outside["aten.copy_"] >= 2 and outside["aten.clone"] >= 1 and outside["aten.masked_fill"] == 1

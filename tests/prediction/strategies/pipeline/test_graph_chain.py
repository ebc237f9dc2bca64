"""Chains of recorded steps: sums that must be conserved, and skip connections counted by hand."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import nn

from foretrain.errors import InvalidRequest
from foretrain.prediction.strategies.pipeline.cuts import (
    Chain,
    Cuts,
    StageLink,
    StageMemory,
    chain_of,
    cut,
    evaluate_cuts,
    position_of_every_call,
    positions_of_calls,
)
from foretrain.workloads.example import Example
from foretrain.workloads.graph import Graph, Phase, Role
from foretrain.workloads.options import ResolvedOptions, WorkloadRequest
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.workload import graph_of, workload_of

WIDTH = 8
BATCH = 2
TENSOR = BATCH * WIDTH * 4
"""Bytes of every activation of the models below."""


class Skip(nn.Module):
    """Four linear layers; the first one's result is added to the last one's, as in a U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        first: torch.Tensor = self.layers[0](inputs)
        out: torch.Tensor = self.layers[3](self.layers[2](self.layers[1](first)))
        return out + first


class Tied(nn.Module):
    """One weight used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(WIDTH, WIDTH, bias=False)
        self.middle = nn.Linear(WIDTH, WIDTH, bias=False)
        self.decode = nn.Linear(WIDTH, WIDTH, bias=False)
        self.decode.weight = self.encode.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.decode(self.middle(self.encode(inputs)))
        return out


def traced(kind: type[nn.Module], precision: str = "fp32", optimizer: str | None = "adam") -> Graph:
    with torch.device("meta"):
        module, inputs = kind(), torch.zeros(BATCH, WIDTH)
    example = Example(module, (inputs,), lambda output: output.sum(), samples=BATCH)
    return trace(example, ResolvedOptions(precision=precision, optimizer=optimizer))


@cache
def zoo(name: str, checkpoint: bool = False, precision: str | None = None) -> Graph:
    request = WorkloadRequest(name, batch=2, precision=precision, checkpoint_activations=checkpoint)
    return graph_of(workload_of(request))


def timed(graph: Graph) -> Chain:
    """Each call takes a time of its own, so that one in the wrong place shows."""
    return chain_of(graph, [1 + index % 7 for index in range(len(graph.calls))])


def test_a_skip_connection_crosses_every_cut_it_spans() -> None:
    """Positions: layer 0 to 3, the addition, the loss. Between layers 1 and 2 two tensors cross, and so on;
    after layer 0 its result alone: the skip and the next layer read the same tensor."""
    chain = timed(traced(Skip))
    assert chain.names[:4] == ("layers.0", "layers.1", "layers.2", "layers.3")
    assert (chain.crossing_bytes[:5] / TENSOR).tolist() == [1, 2, 2, 2, 1]


def test_each_layer_holds_its_weight_and_what_it_saves() -> None:
    chain = timed(traced(Skip))
    assert (chain.parameter_bytes[:4] / (WIDTH * WIDTH * 4)).tolist() == [1, 1, 1, 1]
    assert (chain.saved_bytes[:4] / TENSOR).tolist() == [1, 1, 1, 0], "the last layer's result is only added"
    assert not chain.tied


def test_a_tied_weight_is_charged_twice_and_named() -> None:
    chain = timed(traced(Tied))
    assert (chain.parameter_bytes[:3] / (WIDTH * WIDTH * 4)).tolist() == [1, 1, 1]
    assert chain.tied == ("encode.weight",)
    answer = cut(chain, 2)
    assert isinstance(answer, Cuts)
    assert answer.tied == ("encode.weight",)


@pytest.mark.parametrize(
    ("name", "checkpoint", "precision"),
    [("resnet18", False, None), ("unet", False, None), ("gpt2", True, "bf16")],
)
def test_all_the_work_is_somewhere(name: str, checkpoint: bool, precision: str | None) -> None:
    graph = zoo(name, checkpoint, precision)
    chain = timed(graph)
    times = dict.fromkeys(Phase, 0)
    for index, call in enumerate(graph.calls):
        times[call.phase] += 1 + index % 7
    assert chain.forward_seconds.sum() == times[Phase.FORWARD]
    assert chain.backward_seconds.sum() == times[Phase.BACKWARD]
    assert chain.optimizer_seconds is not None
    assert chain.optimizer_seconds.sum() == pytest.approx(times[Phase.OPTIMIZER])
    parameters = {i: b.name for i, b in enumerate(graph.buffers) if b.role is Role.PARAMETER}
    held = sum(map(graph.buffer_bytes, parameters))
    tied = sum(graph.buffer_bytes(index) for index, name in parameters.items() if name in chain.tied)
    assert chain.parameter_bytes.sum() == held + tied
    assert (chain.crossing_bytes >= 0).all()
    assert (chain.crossing_bytes > 0).mean() > 0.9


def test_gpt2_ties_its_head_to_its_tokens() -> None:
    assert timed(zoo("gpt2", True, "bf16")).tied == ("tokens.weight",)


def test_recomputation_goes_with_the_layer_it_repeats() -> None:
    """Checkpointed blocks spend their forward time once more in the backward pass."""
    graph = zoo("gpt2", True, "bf16")
    positions = positions_of_calls(graph)
    seconds = [float(call.recomputed) for call in graph.calls]
    chain = chain_of(graph, seconds)
    blocks = sorted({name.split(".")[1] for name in chain.names if name.startswith("blocks.")}, key=int)
    spent = [
        sum(
            second
            for second, name in zip(chain.backward_seconds, chain.names, strict=True)
            if name.startswith(f"blocks.{block}.")
        )
        for block in blocks
    ]
    assert len(positions) > len(chain)
    assert min(spent) > 0
    assert max(spent) - min(spent) <= 2, "the sums between blocks stand outside the modules"


def test_every_call_has_a_position_but_those_of_the_optimizer() -> None:
    graph = zoo("gpt2", True, "bf16")
    chain, position = timed(graph), position_of_every_call(graph)
    phases = np.array([call.phase for call in graph.calls])
    assert (position[phases == Phase.OPTIMIZER] == -1).all()
    times = np.array([1.0 + index % 7 for index in range(len(graph.calls))])
    for phase, expected in ((Phase.FORWARD, chain.forward_seconds), (Phase.BACKWARD, chain.backward_seconds)):
        own = phases == phase
        assert np.bincount(position[own], times[own], len(chain)).tolist() == expected.tolist()


def crossing_again(graph: Graph, cut_after: int, positions: list[int]) -> int:
    """What crosses a cut, by looking at every buffer."""
    before = {
        b for call, at in zip(graph.calls, positions, strict=False) if at <= cut_after for b in call.writes
    }
    after = {
        b for call, at in zip(graph.calls, positions, strict=False) if at > cut_after for b in call.reads
    }
    kept = (Role.PARAMETER, Role.MODULE_BUFFER, Role.INPUT, Role.CAST_WEIGHT)
    both = (index for index in before & after if graph.buffers[index].role not in kept)
    return sum(graph.buffer_bytes(index) for index in both)


@pytest.mark.parametrize("name", ["resnet18", "unet"])
def test_crossings_are_those_of_the_recorded_buffers(name: str) -> None:
    graph = zoo(name)
    chain, positions = timed(graph), positions_of_calls(graph)
    for cut_after in range(0, len(chain) - 1, 3):
        assert chain.crossing_bytes[cut_after] == crossing_again(graph, cut_after, positions)


@pytest.mark.parametrize("name", ["resnet18", "unet"])
def test_cuts_of_real_models_are_the_best_of_all(name: str) -> None:
    chain = timed(zoo(name))
    link = StageLink(seconds_per_byte=5e-6)
    room = (chain.parameter_bytes.sum() * 4 + chain.saved_bytes.sum() * 2) * 0.8
    memory = StageMemory(room, 4.0, lambda stages: tuple(range(stages, 0, -1)))
    answer = cut(chain, 3, link, memory)
    assert isinstance(answer, Cuts)
    tried = (
        evaluate_cuts(chain, (0, *inner, len(chain)), link, memory)
        for inner in combinations(range(1, len(chain)), 2)
    )
    assert answer.seconds == pytest.approx(min(one.seconds for one in tried if max(one.stage_bytes) <= room))


def test_a_unet_is_cut_where_few_skips_cross() -> None:
    """Dear links move the cut away from the bottom, over which all skip connections lead."""
    chain = timed(zoo("unet"))
    cheap, dear = (cut(chain, 2, StageLink(seconds_per_byte=cost)) for cost in (0.0, 1.0))
    assert isinstance(cheap, Cuts)
    assert isinstance(dear, Cuts)
    assert dear.cut_bytes[0] == chain.crossing_bytes.min() < cheap.cut_bytes[0]


def test_times_must_match_the_calls() -> None:
    with pytest.raises(InvalidRequest, match="one entry for each of"):
        chain_of(traced(Skip), np.zeros(3).tolist())

"""A step as it runs: without what the host does, and with the kernels of its compiler or framework.

An offloaded optimizer runs on the host: its calls and its state leave the graph. Offloaded parameters and
activations stay in the graph, since the device computes with them; `prediction.memory` gives them shorter
lifetimes, and `prediction.step.offload` the time of their copies. What remains is fused where it is compiled
(`fusion`) or where its framework has kernels of its own (`fused_kernels`).

References: J. Ren et al., "ZeRO-Offload", arXiv:2101.06840; PyTorch `fsdp.CPUOffload` and
`autograd.graph.save_on_cpu`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from foretrain.facts.frameworks import frameworks
from foretrain.workloads.depth import NotDerivable, at_every_depth, deepen
from foretrain.workloads.fused_kernels import Fusion, fuse_kernels
from foretrain.workloads.fusion import CONVOLUTION, plan_fusion
from foretrain.workloads.graph import Graph, Phase, Role, with_options
from foretrain.workloads.rematerialisation import with_retyped_specs
from foretrain.workloads.rules import operators

OPTIMIZER, PARAMETERS, ACTIVATIONS = "optimizer", "parameters", "activations"
"""What may be offloaded."""
_SINGLE = ("fp32", "tf32")


@dataclass(frozen=True, eq=False)
class ExecutedGraph:
    """A step as it was recorded (`source`) and as it runs (`graph`).

    Strategies divide the source, since a fused kernel hides which dimensions it works on. `first`, if given,
    is the step at the size its family was recorded at: kernels are chosen there, once for all sizes.
    """

    source: Graph
    first: ExecutedGraph | None = None

    @cached_property
    def graph(self) -> Graph:
        """The step with its kernels fused, if it is compiled or its framework fuses any."""
        if not fuses(self.source):
            return self.source
        if self.shallow is not None:
            low, high, extra = self.shallow
            with suppress(NotDerivable):
                return deepen(low.graph, high.graph, extra)
        if self.first is None:
            return self._fusion.graph
        return self.first.graph.with_sizes_of(with_retyped_specs(self.source, self.first._fusion.retyped))

    @cached_property
    def shallow(self) -> tuple[ExecutedGraph, ExecutedGraph, int] | None:
        """The step with a few of its equal blocks, with one more, and how many more than these it has.

        None, too, if images are compiled: their layout depends on the number of all calls.
        """
        if self.source.repeats is None:
            return None
        low, high, extra = self.source.repeats
        if self.source.options.compile and any(call.name == CONVOLUTION for call in low.calls):
            return None
        first = self.first.shallow if self.first is not None else None
        if first is None:
            return ExecutedGraph(low), ExecutedGraph(high), extra
        return ExecutedGraph(low, first[0]), ExecutedGraph(high, first[1]), extra

    @cached_property
    def _fusion(self) -> Fusion:
        return fuse_executed(self.source)

    def with_options(self, **changes: Any) -> ExecutedGraph:
        """The same step run with other options; its kernels are chosen anew."""
        return ExecutedGraph(at_every_depth(partial(with_options, **changes))(self.source))


def fuses(graph: Graph) -> bool:
    """Whether a step has fused kernels: because it is compiled, or by its framework."""
    return bool(graph.options.compile or _find_framework_fusions(graph))


def _find_framework_fusions(graph: Graph) -> frozenset[str]:
    fused_groups = frameworks()[graph.options.framework].fused
    if graph.options.precision in _SINGLE:
        # Megatron's kernel takes FP16 and BF16 alone (`FusedScaleMaskSoftmax.is_kernel_available`)
        fused_groups -= {"softmax"}
    match graph.options.loss:
        case "fused":
            return fused_groups | {"loss"}
        case "eager":
            return fused_groups - {"loss"}
    return fused_groups


def fuse_executed(graph: Graph, exchanges: Sequence[tuple[int, int]] = ()) -> Fusion:
    """The graph as it is executed: compiled, or with the kernels of its framework.

    `exchanges` are the calls after which each exchange between devices starts, and those that wait for it.
    """
    own = _find_framework_fusions(graph)
    if graph.options.compile or not own:
        return plan_fusion(graph, {call for after, before in exchanges for call in (after + 1, before)})
    return fuse_kernels(graph, operators(graph), own, exchanges)


def is_offloaded(graph: Graph, what: str) -> bool:
    """Whether a graph leaves something to the host."""
    return what in graph.options.offload


@at_every_depth
def offload_optimizer(graph: Graph) -> Graph:
    """The graph without its optimizer, if that is offloaded."""
    has_update = any(call.phase is Phase.OPTIMIZER for call in graph.calls)
    if not is_offloaded(graph, OPTIMIZER) or not has_update:
        return graph
    return _without_optimizer(graph)


def _without_optimizer(graph: Graph) -> Graph:
    end = next(index for index, call in enumerate(graph.calls) if call.phase is Phase.OPTIMIZER)
    kept = [
        index
        for index, buffer in enumerate(graph.buffers)
        if buffer.role is not Role.OPTIMIZER_STATE and buffer.born < end
    ]
    number = {old: new for new, old in enumerate(kept)}

    def renumbered(buffers: Iterable[int]) -> tuple[int, ...]:
        return tuple(number[buffer] for buffer in buffers if buffer in number)

    state = sum(
        graph.buffer_bytes(index)
        for index, buffer in enumerate(graph.buffers)
        if buffer.role is Role.OPTIMIZER_STATE
    )
    return replace(
        graph,
        calls=tuple(
            call._replace(reads=renumbered(call.reads), writes=renumbered(call.writes))
            for call in graph.calls[:end]
        ),
        buffers=tuple(graph.buffers[index] for index in kept),
        offloaded_state_bytes_per_parameter=state / max(1, graph.trainable_parameters),
    )

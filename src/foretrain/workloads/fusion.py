"""What `torch.compile` does to a graph: chains of memory-bound operators become single kernels.

Between two operators that stay kernels of their own (matrix products, convolutions, attention ...) every
run of connected pointwise operators, casts, dropouts, norms, softmaxes, losses and reductions is fused: it
reads what comes from outside, writes what is needed later, and what lived only inside is never stored. Views
alone are no kernel. Kernels of the backward pass recompute activations that are cheaper to recompute than to
save (`rematerialisation`): they read what those are recomputed from; the arithmetic takes no time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from foretrain.facts.frameworks import PLAIN, frameworks
from foretrain.workloads.fused_kernels import FUSED, fuse_kernels
from foretrain.workloads.graph import Buffer, Call, Graph, Nature
from foretrain.workloads.ops import Kind, Op
from foretrain.workloads.rematerialisation import Rematerialisation, rematerialisation, with_retyped_specs
from foretrain.workloads.rules import operators

FUSIBLE = frozenset(
    {Kind.ELEMENTWISE, Kind.DROPOUT, Kind.RANDOM, Kind.NORMALISATION, Kind.SOFTMAX, Kind.REDUCTION, Kind.VIEW}
)
_ALSO_FUSIBLE = frozenset(
    (
        "aten._to_copy aten.clone aten.zeros_like aten.ones_like aten.full_like aten.copy_ "
        "aten.nll_loss_forward aten.nll_loss_backward aten.nll_loss2d_forward aten.nll_loss2d_backward"
    ).split()
)


@dataclass(frozen=True, eq=False)
class Fusion:
    """A fused graph, and where each call of the graph it was made from went.

    `place[i]` is the call that call `i` became part of; one more entry stands for the end of the step.
    `retyped` are specs that the fused graph has in another dtype, too (see `rematerialisation`).
    """

    graph: Graph
    place: tuple[int, ...]
    retyped: tuple[tuple[int, str], ...]


def fusion(graph: Graph, breaks: Collection[int] = ()) -> Fusion:
    """The graph as `torch.compile` would run it, with no kernel spanning the start of the calls `breaks`.

    Exchanges between devices are such breaks: a kernel cannot go on with a sum that other devices still send.
    """
    ops = operators(graph)
    stays = {op.call for op in ops if not _is_fusible(op)}
    chosen = rematerialisation(graph, stays, {op.call for op in ops if op.work.kind is Kind.RANDOM})
    graph = chosen.graph
    last_read = _last_reads(graph)
    calls: list[Call] = []
    place: list[int] = []
    for group in _groups(graph, stays, frozenset(breaks)):
        is_kernel = len(group) > 1 or not chosen.added.keys().isdisjoint(group)
        if not is_kernel or all(graph.calls[index].nature is Nature.VIEW for index in group):
            place.extend(range(len(calls), len(calls) + len(group)))
            calls.extend(graph.calls[index] for index in group)
        else:
            place.extend([len(calls)] * len(group))
            calls.append(_fused(chosen, group, last_read))
    place.append(len(calls))
    calls = [call if call.forward is None else call._replace(forward=place[call.forward]) for call in calls]
    return Fusion(_without_inner_buffers(graph, tuple(calls), place), tuple(place), chosen.retyped)


def fuse(graph: Graph) -> Graph:
    """The graph as `torch.compile` would run it."""
    return fusion(graph).graph


def fuses(graph: Graph) -> bool:
    """Whether a step has fused kernels: because it is compiled, or by its framework."""
    return bool(graph.settings.get("compile") or _fused_by_framework(graph))


def _fused_by_framework(graph: Graph) -> frozenset[str]:
    return frameworks()[graph.settings.get("framework") or PLAIN].fused


def executed_fusion(graph: Graph, exchanges: Sequence[tuple[int, int]] = ()) -> Fusion:
    """The graph as it is executed: compiled, or with the kernels of its framework.

    `exchanges` are the calls after which each exchange between devices starts, and those that wait for it.
    """
    own = _fused_by_framework(graph)
    if graph.settings.get("compile") or not own:
        return fusion(graph, {call for after, before in exchanges for call in (after + 1, before)})
    step = fuse_kernels(graph, operators(graph), own, exchanges)
    return Fusion(step.graph, step.place, step.retyped)


def fused(graph: Graph) -> Graph:
    """The executed graph, computed once for all graphs of a family; `unfused` leads back."""
    executed: Graph | None = graph.__dict__.get("fused")
    if executed is None:
        root: Graph | None = graph.__dict__.get(Graph.ROOT)
        if root is None:
            result = executed_fusion(graph)
            executed, retyped = result.graph, result.retyped
        else:
            first = fused(root)
            retyped = first.__dict__["retyped"]
            executed = first.with_sizes_of(with_retyped_specs(graph, retyped))
        executed.__dict__.update(unfused=graph, retyped=retyped)
        graph.__dict__["fused"] = executed
    return executed


def is_fused(graph: Graph) -> bool:
    """Whether kernels of a graph were fused."""
    return "unfused" in graph.__dict__ or any(call.name == FUSED for call in graph.calls)


def unfused(graph: Graph) -> Graph:
    """The graph before fusion: what strategies divide. A fused kernel hides which dimensions it works on."""
    origin: Graph = graph.__dict__.get("unfused", graph)
    assert not any(call.name == FUSED for call in origin.calls), (
        "a fused graph was changed; change the original"
    )
    return origin


def _is_fusible(op: Op) -> bool:
    return op.work.kind in FUSIBLE or op.name in _ALSO_FUSIBLE


def _groups(graph: Graph, stays: set[int], breaks: frozenset[int]) -> Iterator[list[int]]:
    """Runs of consecutive fusible calls of one phase, each connected to the run by what it reads."""
    run: list[int] = []
    touched: set[int] = set()
    for index, call in enumerate(graph.calls):
        fusible = index not in stays
        connected = not run or (
            graph.calls[run[-1]].phase is call.phase
            and not touched.isdisjoint(call.reads)
            and index not in breaks
        )
        if run and not (fusible and connected):
            yield run
            run, touched = [], set()
        if not fusible:
            yield [index]
            continue
        run.append(index)
        touched.update(call.reads, call.writes)
    if run:
        yield run


def _fused(chosen: Rematerialisation, group: list[int], last_read: dict[int, int]) -> Call:
    graph = chosen.graph
    calls = [graph.calls[index] for index in group]
    written: set[int] = set()
    reads: dict[int, None] = {}
    for call in calls:
        reads.update(dict.fromkeys(buffer for buffer in call.reads if buffer not in written))
        written.update(call.writes)
    outlives = {buffer for buffer in written if _is_needed_after(graph, buffer, group[-1], last_read)}
    return Call(
        name=FUSED,
        phase=calls[0].phase,
        module=calls[0].module,
        inputs=tuple(graph.buffers[buffer].spec for buffer in reads),
        outputs=tuple(graph.buffers[buffer].spec for buffer in sorted(outlives)),
        reads=tuple(reads),
        writes=tuple(sorted(outlives)),
        settings={
            "fused": [
                name
                for index, call in zip(group, calls, strict=True)
                if call.nature is not Nature.VIEW
                for name in (*chosen.added.get(index, ()), call.name)
            ]
        },
        nature=Nature.POINTWISE,
        forward=calls[0].forward,
        recomputed=calls[0].recomputed,
    )


def _is_needed_after(graph: Graph, buffer: int, end: int, last_read: dict[int, int]) -> bool:
    return last_read.get(buffer, -1) > end or graph.buffers[buffer].dies >= len(graph.calls)


def _last_reads(graph: Graph) -> dict[int, int]:
    return {buffer: index for index, call in enumerate(graph.calls) for buffer in call.reads}


def _without_inner_buffers(graph: Graph, calls: tuple[Call, ...], place: list[int]) -> Graph:
    """Leave out the buffers no call touches any more, and number the rest anew."""
    touched = {buffer for call in calls for buffer in (*call.reads, *call.writes)}
    kept = [index for index, buffer in enumerate(graph.buffers) if buffer.born < 0 or index in touched]
    number = {old: new for new, old in enumerate(kept)}

    def renumbered(buffers: Iterable[int]) -> tuple[int, ...]:
        return tuple(number[buffer] for buffer in buffers)

    return replace(
        graph,
        calls=tuple(
            call._replace(reads=renumbered(call.reads), writes=renumbered(call.writes)) for call in calls
        ),
        buffers=tuple(_moved(graph.buffers[index], place) for index in kept),
    )


def _moved(buffer: Buffer, place: list[int]) -> Buffer:
    born = buffer.born if buffer.born < 0 else place[min(buffer.born, len(place) - 1)]
    dies = place[min(buffer.dies, len(place) - 1)] if buffer.dies >= 0 else buffer.dies
    return buffer._replace(born=born, dies=dies)

"""What `torch.compile` does to a graph: chains of memory-bound operators become single kernels.

Operators that stay kernels of their own are matrix products, convolutions, attention, sorts, look-ups. All
others (pointwise operators, casts, copies, dropouts, norms, softmaxes, losses, reductions, pooling) are fused
with what they read, as TorchInductor's scheduler does: a kernel waits for its last reader where nothing in
between needs it, or a reader moves up to the kernel where all it reads is there. The fused kernel reads what
comes from outside, writes what is needed later, and what lived only inside is never stored. Pooling and
resampling read every element several times: they start a kernel, since what they read is stored first. Views
alone are no kernel. Kernels of the backward pass recompute activations that are cheaper to recompute than to
save (`rematerialisation`): they read what those are recomputed from; the arithmetic takes no time.

Convolutions run channels-last where TorchInductor's heuristics say so (`runs_channels_last`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from foretrain.workloads.fused_kernels import FUSED, Fusion
from foretrain.workloads.graph import NO_TENSOR, Buffer, Call, Graph, Nature, Phase, Spec
from foretrain.workloads.ops import Kind, Op
from foretrain.workloads.rematerialisation import Rematerialisation, plan_recomputation
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
_STARTS_A_KERNEL = frozenset({Kind.POOLING, Kind.RESAMPLE})
_REARRANGES = frozenset(
    (
        "aten.cat aten.stack aten.constant_pad_nd aten.roll aten.flip aten.repeat aten.pixel_shuffle "
        "aten.pixel_unshuffle aten.channel_shuffle aten.contiguous aten.glu aten.tril aten.triu "
        "aten.slice_backward aten.select_backward aten.reflection_pad2d aten.replication_pad2d"
    ).split()
)
"""Copies whose elements a fused kernel reads in place. The minimum cut does not recompute them."""
_MOST_JOINED = 8
"""Tensors that are concatenated inside a kernel (`max_pointwise_cat_inputs` of TorchInductor)."""
_LARGEST_KERNEL = 64
"""Operators of one kernel (`max_fusion_size` of TorchInductor)."""
_LONGEST_ROW_BYTES = 2**17
"""The longest row that a cache of 50 MB still holds for its second pass, with 300-400 blocks in flight."""
CONVOLUTION = "aten.convolution"
_CONVOLUTIONS = frozenset({CONVOLUTION, "aten.convolution_backward"})
_CALLS_PERCONVOLUTION = 300
_SMALL_CHANNELS = 64
_SLOWDOWN = {"grouped": 1.358, "small": 0.783, "narrowing": 0.725, "other": 0.823}
"""Channels-last time over channels-first time of forward convolutions, as TorchInductor assumes it."""


def plan_fusion(graph: Graph, breaks: Collection[int] = ()) -> Fusion:
    """The graph as `torch.compile` would run it, with no kernel spanning the start of the calls `breaks`.

    Exchanges between devices are such breaks: a kernel cannot go on with a sum that other devices still send.
    """
    ops = operators(graph)
    stays = {op.call for op in ops if not _is_fusible(op)}
    chosen = plan_recomputation(graph, stays, {op.call for op in ops if op.work.kind is Kind.RANDOM})
    graph = chosen.graph
    scheduled = _schedule(graph, ops, frozenset(breaks))
    readers = _readers(graph)
    is_last = runs_channels_last(graph)
    calls: list[Call] = []
    place = [0] * len(graph.calls)
    for group in scheduled:
        is_kernel = len(group) > 1 or not chosen.added.keys().isdisjoint(group)
        if is_kernel and any(graph.calls[index].nature is not Nature.VIEW for index in group):
            for index in group:
                place[index] = len(calls)
            calls.append(_fuse(chosen, group, readers))
            continue
        for index in group:
            place[index] = len(calls)
            calls.append(_lay_out(graph.calls[index]) if is_last else graph.calls[index])
    place.append(len(calls))
    calls = [call if call.forward is None else call._replace(forward=place[call.forward]) for call in calls]
    return Fusion(_without_inner_buffers(graph, tuple(calls), place), tuple(place), chosen.retyped)


def fuse(graph: Graph) -> Graph:
    """The graph as `torch.compile` would run it."""
    return plan_fusion(graph).graph


def _is_fusible(op: Op) -> bool:
    return op.work.kind in FUSIBLE or op.name in _ALSO_FUSIBLE


@dataclass(eq=False)
class _Kernel:
    """Calls that run together, where call `position` was."""

    position: int
    may_grow: bool
    calls: list[int] = field(default_factory=list)
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)

    def take(self, other: _Kernel) -> None:
        """Add the calls of another kernel."""
        self.calls = sorted([*self.calls, *other.calls])
        self.reads |= other.reads
        self.writes |= other.writes
        other.calls = []


def _schedule(graph: Graph, ops: Sequence[Op], breaks: frozenset[int]) -> list[list[int]]:
    """The calls of every kernel, in the order in which the kernels run."""
    schedule = _Schedule(graph, breaks)
    main: dict[int, Op] = {}
    for op in ops:
        if op.call not in main or _is_fusible(main[op.call]):
            main[op.call] = op
    for index, call in enumerate(graph.calls):
        schedule.add(index, *_how_fused(call, main.get(index)))
    ordered = sorted(schedule.kernels, key=lambda each: each.position)
    return [kernel.calls for kernel in ordered if kernel.calls]


class _Schedule:
    """The kernels of a graph, made call by call.

    A call joins all kernels whose results it reads, if they can wait for it: nothing that runs in between
    uses what they write or overwrites what they read. Else it joins the last one that runs when everything
    else that the call reads is there. Calls of two phases never share a kernel, nor do calls on both sides of
    a break.
    """

    def __init__(self, graph: Graph, breaks: frozenset[int]) -> None:
        self.kernels: list[_Kernel] = []
        self._graph = graph
        self._broken = list(accumulate(int(index in breaks) for index in range(len(graph.calls))))
        self._kernel_of: list[_Kernel] = []
        self._users: dict[int, list[tuple[int, bool]]] = {}

    def add(self, index: int, fuses: bool, starts: bool) -> None:
        """Add the next call, which may be fused with later ones, and with earlier ones unless it `starts`."""
        call = self._graph.calls[index]
        candidates = self._candidates(index) if fuses and not starts else []
        waiting = [kernel for kernel in candidates if not kernel.writes.isdisjoint(call.reads)]
        while any(held := [self._is_held(kernel, waiting) for kernel in waiting]):
            waiting = [kernel for kernel, is_held in zip(waiting, held, strict=True) if not is_held]
        if waiting:
            kernel = waiting[0]
            for other in waiting[1:]:
                for member in other.calls:
                    self._kernel_of[member] = kernel
                kernel.take(other)
            kernel.position = index
        else:
            ready = [kernel for kernel in candidates if self._is_ready(call, kernel)]
            kernel = max(ready, key=lambda each: each.position, default=_Kernel(index, fuses))
        if not kernel.calls:
            self.kernels.append(kernel)
        self._kernel_of.append(kernel)
        kernel.calls.append(index)
        writes = () if call.nature is Nature.VIEW else call.writes  # a view names what it is a view of
        kernel.reads.update(call.reads)
        kernel.writes.update(writes)
        for buffers, is_write in ((call.reads, False), (writes, True)):
            for buffer in buffers:
                self._users.setdefault(buffer, []).append((index, is_write))

    def _candidates(self, index: int) -> list[_Kernel]:
        """Kernels that use what a call reads, and that the call may be part of."""
        call = self._graph.calls[index]
        kernels: dict[int, _Kernel] = {}
        for buffer in call.reads:
            for user, _ in self._users.get(buffer, ()):
                kernel = self._kernel_of[user]
                first = kernel.calls[0]
                other = self._graph.calls[first]
                if (
                    kernel.may_grow
                    and len(kernel.calls) < _LARGEST_KERNEL
                    and (other.phase, other.recomputed) == (call.phase, call.recomputed)
                    and self._broken[index] == self._broken[first]
                ):
                    kernels[id(kernel)] = kernel
        return list(kernels.values())

    def _is_held(self, kernel: _Kernel, together: Sequence[_Kernel]) -> bool:
        """Whether a kernel that runs later uses what this one writes, or overwrites what this one reads."""
        return any(
            (is_write or buffer in kernel.writes)
            and self._kernel_of[user].position > kernel.position
            and all(self._kernel_of[user] is not other for other in together)
            for buffer in (*kernel.writes, *kernel.reads)
            for user, is_write in self._users.get(buffer, ())
        )

    def _is_ready(self, call: Call, kernel: _Kernel) -> bool:
        """Whether everything that a call reads is there when a kernel runs."""
        needed = [user for buffer in call.reads for user, is_write in self._users.get(buffer, ()) if is_write]
        needed += [user for buffer in call.writes for user, _ in self._users.get(buffer, ())]
        return all(self._kernel_of[user].position <= kernel.position for user in needed)


def _how_fused(call: Call, op: Op | None) -> tuple[bool, bool]:
    """Whether a call is fused, and whether it starts a kernel."""
    if op is None or _is_fusible(op):
        return True, False
    if call.name in _REARRANGES:
        return True, len(call.reads) > _MOST_JOINED
    return op.work.kind in _STARTS_A_KERNEL, True


def _readers(graph: Graph) -> dict[int, list[int]]:
    readers: dict[int, list[int]] = {}
    for index, call in enumerate(graph.calls):
        for buffer in call.reads:
            readers.setdefault(buffer, []).append(index)
    return readers


def _fuse(chosen: Rematerialisation, group: list[int], readers: dict[int, list[int]]) -> Call:
    graph = chosen.graph
    calls = [graph.calls[index] for index in group]
    members = set(group)
    written: set[int] = set()
    reads: dict[int, list[int]] = {}
    for call in calls:
        if call.nature is Nature.VIEW:
            continue
        given = [spec for spec in call.inputs if spec != NO_TENSOR]
        seen = dict(zip(call.reads, given, strict=True)) if len(given) == len(call.reads) else {}
        for buffer in call.reads:
            if buffer not in written:
                reads.setdefault(buffer, []).append(seen.get(buffer, graph.buffers[buffer].spec))
        written.update(call.writes)
    outlives = {
        buffer
        for buffer in written
        if graph.buffers[buffer].dies >= len(graph.calls)
        or any(reader not in members for reader in readers.get(buffer, ()))
    }
    inputs = tuple(spec for buffer, specs in reads.items() for spec in _read_specs(graph, buffer, specs))
    again = _find_read_again(graph, calls, inputs)
    return Call(
        name=FUSED,
        phase=calls[0].phase,
        module=calls[0].module,
        inputs=inputs,
        outputs=tuple(graph.buffers[buffer].spec for buffer in sorted(outlives)),
        reads=tuple(reads),
        writes=tuple(sorted(outlives)),
        settings={
            "fused": [
                name
                for index, call in zip(group, calls, strict=True)
                if call.nature is not Nature.VIEW
                for name in (*chosen.added.get(index, ()), call.name)
            ],
            **({"again": again} if again else {}),
        },
        nature=Nature.POINTWISE,
        forward=calls[0].forward,
        recomputed=calls[0].recomputed,
    )


def _find_read_again(graph: Graph, calls: Sequence[Call], inputs: Sequence[int]) -> list[int]:
    """The positions of inputs that are read twice: as large as what a norm of long rows works on.

    Batch norm on an H100, compiled: three passes over its data at 88 % of the bandwidth (KernelBench).
    """
    sizes = [size for call in calls if "norm" in call.name and (size := _normalised_elements(graph, call))]
    return [place for place, spec in enumerate(inputs) if sizes and graph.specs[spec].elements >= min(sizes)]


def _normalised_elements(graph: Graph, call: Call) -> int:
    """Elements that a forward norm needs statistics of, if its rows do not stay in the cache; else 0."""
    if call.phase is not Phase.FORWARD or not call.inputs or call.inputs[0] == NO_TENSOR:
        return 0
    data = graph.specs[call.inputs[0]]
    if "batch_norm" in call.name:
        is_frozen = call.name.endswith("_no_training") or call.settings.get("training") is False
        return 0 if is_frozen else data.elements
    if "group_norm" not in call.name:
        return 0
    row_bytes = data.bytes / max(1, data.shape[0] * int(call.settings["group"]))
    return data.elements if row_bytes > _LONGEST_ROW_BYTES else 0


def _read_specs(graph: Graph, buffer: int, taken: Sequence[int]) -> Sequence[int]:
    """What a kernel reads of a buffer: the parts of it that its calls take, or all of it."""
    whole = graph.buffers[buffer].spec
    parts = sum(graph.specs[spec].bytes for spec in taken)
    return taken if parts < graph.specs[whole].bytes else (whole,)


def runs_channels_last(graph: Graph) -> bool:
    """Whether TorchInductor lays out the images of a step channels-last (`decide_layout_opt`, PyTorch 2.9).

    A forward pass: where its assumed gains and losses by kind of convolution sum up to a gain. A training
    step: unless a convolution has groups of several channels, or many more channels in than out, or all are
    narrow. A step with few convolutions keeps its layout.
    """
    forward = [call for call in graph.calls if call.phase is Phase.FORWARD]
    convolutions = [call for call in forward if call.name == CONVOLUTION]
    if not convolutions or len(forward) >= _CALLS_PERCONVOLUTION * len(convolutions):
        return False
    kinds = [_convolution_kind(graph, call) for call in convolutions]
    if len(forward) == len(graph.calls):
        flop = [
            graph.specs[call.outputs[0]].elements * graph.specs[call.inputs[1]].elements
            / max(1, graph.specs[call.inputs[1]].shape[0])
            for call in convolutions
        ]  # fmt: skip
        weighted = sum(_SLOWDOWN[kind] * each for kind, each in zip(kinds, flop, strict=True))
        return weighted <= sum(flop)
    is_narrowing = any(_narrows(graph.specs[call.inputs[1]]) for call in convolutions)
    return "grouped" not in kinds and not is_narrowing and any(kind != "small" for kind in kinds)


def _convolution_kind(graph: Graph, call: Call) -> str:
    weight = graph.specs[call.inputs[1]]
    if call.settings["groups"] > 1 and weight.shape[1] > 1:
        return "grouped"
    if max(weight.shape[:2]) <= _SMALL_CHANNELS:
        return "small"
    return "narrowing" if _narrows(weight) else "other"


def _narrows(weight: Spec) -> bool:
    return weight.shape[0] * 2 <= weight.shape[1] and len(weight.shape) > 2 and weight.shape[2] > 1


def _lay_out(call: Call) -> Call:
    """The call in channels-last layout, if it depends on the layout."""
    depends = call.name in _CONVOLUTIONS or "pool" in call.name or "batch_norm" in call.name
    return call._replace(settings={**call.settings, "channels_last": True}) if depends else call


def _without_inner_buffers(graph: Graph, calls: tuple[Call, ...], place: list[int]) -> Graph:
    """Leave out the buffers no call touches any more, and number the rest anew."""
    touched = {buffer for call in calls for buffer in (*call.reads, *call.writes)}
    kept = [index for index, buffer in enumerate(graph.buffers) if buffer.born < 0 or index in touched]
    number = {old: new for new, old in enumerate(kept)}
    last_use = {buffer: index for index, call in enumerate(calls) for buffer in (*call.reads, *call.writes)}

    def renumbered(buffers: Iterable[int]) -> tuple[int, ...]:
        return tuple(number[buffer] for buffer in buffers)

    return replace(
        graph,
        calls=tuple(
            call._replace(reads=renumbered(call.reads), writes=renumbered(call.writes)) for call in calls
        ),
        buffers=tuple(_move(graph.buffers[index], place, last_use.get(index, -1)) for index in kept),
    )


def _move(buffer: Buffer, place: list[int], last_use: int) -> Buffer:
    born = buffer.born if buffer.born < 0 else place[min(buffer.born, len(place) - 1)]
    dies = place[min(buffer.dies, len(place) - 1)] if buffer.dies >= 0 else buffer.dies
    return buffer._replace(born=born, dies=max(dies, last_use))

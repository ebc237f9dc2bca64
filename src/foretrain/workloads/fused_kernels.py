"""What a framework with fused kernels does to a graph: Megatron-LM and its relatives.

Written by hand, such kernels join fewer operators than a compiler does (`fusion`):

* `norm`, `activation` (gate times up included), `rope`, `softmax` (scale, mask and softmax of attention),
  `residual` (dropout and sum) and `loss`: consecutive operators of one module become one kernel that reads
  what comes from outside and writes what is needed later. Backward kernels recompute what is inside them from
  what a fused operator saves: the input of a norm and its statistics, the two halves of a gated activation.
* `projections`: layers of one module that read the same input are one product (queries, keys and values; gate
  and up), so that the gradients of their input need no sum.
* `accumulation`: products of weight gradients add to the FP32 gradient themselves.

References: M. Shoeybi et al., "Megatron-LM", arXiv:1909.08053; V. Korthikanti et al., "Reducing Activation
Recomputation in Large Transformer Models", arXiv:2205.05198, section 4.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from foretrain.workloads.graph import NO_TENSOR, Call, Graph, Nature, Phase, Role
from foretrain.workloads.ops import Direction, Kind, Op
from foretrain.workloads.rematerialisation import Rematerialisation, plan_recomputation

FUSED, PRODUCTS = "foretrain.fused", "foretrain.products"
_POINTWISE = frozenset(
    {Kind.ELEMENTWISE, Kind.DROPOUT, Kind.RANDOM, Kind.NORMALISATION, Kind.SOFTMAX, Kind.REDUCTION, Kind.VIEW}
)
_ALSO_POINTWISE = frozenset(
    (
        "aten._to_copy aten.clone aten.zeros_like aten.ones_like aten.full_like aten.copy_ aten.cat "
        "aten.slice_backward aten.constant_pad_nd aten.select_backward aten.nll_loss_forward "
        "aten.nll_loss_backward"
    ).split()
)
"""Operators beside the pointwise kinds that a kernel of one of these groups computes in passing."""
_OPERANDS = {"aten.mm": 2, "aten.addmm": 3}
"""Products that can be joined, with their tensor arguments."""
_HALF = frozenset({"float16", "bfloat16"})
_WEIGHTS = (Role.PARAMETER, Role.CAST_WEIGHT)

Exchanges = Sequence[tuple[int, int]]
"""The calls that exchanges between devices start after and that wait for them."""


@dataclass(frozen=True, eq=False)
class Fusion:
    """A fused graph, and where each call of the graph it was made from went.

    `place[i]` is the call that call `i` became part of; one more entry stands for the end of the step.
    `retyped` are specs that the fused graph has in another dtype, too (see `rematerialisation`).
    """

    graph: Graph
    place: tuple[int, ...]
    retyped: tuple[tuple[int, str], ...]


@dataclass(eq=False)
class _Kernel:
    """Calls that become one, at the place of the first or the last of them; products have no `part`."""

    members: list[int]
    position: int
    part: str = ""
    inside: set[int] = field(default_factory=set)
    """Buffers that are never stored: sums and gradients that the kernel keeps to itself."""


def fuse_kernels(graph: Graph, ops: Sequence[Op], fused: frozenset[str], exchanges: Exchanges = ()) -> Fusion:
    """The graph as a framework runs it that fuses the groups `fused`; no kernel spans an exchange.

    The kernels are those of transformers: a model without attention stays as it is.
    """
    kinds: dict[int, Op] = {}
    for op in ops:  # a call of several operators is known by the last, its main one
        kinds[op.call] = op
    if not _Scopes(graph, kinds).has_attention:
        return Fusion(graph, tuple(range(len(graph.calls) + 1)), ())
    products = _join_products(graph, kinds, fused, exchanges)
    kernels = [*products, *_runs(graph, kinds, products, fused, exchanges)]
    in_runs = {index for kernel in kernels if kernel.part for index in kernel.members}
    random = {op.call for op in ops if op.work.kind is Kind.RANDOM}
    chosen = plan_recomputation(graph, set(range(len(graph.calls))) - in_runs, random)
    return _rebuilt(chosen, kernels)


def _join_products(
    graph: Graph, kinds: Mapping[int, Op], fused: frozenset[str], exchanges: Exchanges
) -> list[_Kernel]:
    """Products of layers that share their input, and products that add up gradients."""
    readers: defaultdict[int, list[int]] = defaultdict(list)
    views: defaultdict[int, list[int]] = defaultdict(list)
    for index, call in enumerate(graph.calls):
        for buffer in dict.fromkeys(call.reads):
            (views if call.nature is Nature.VIEW else readers)[buffer].append(index)
    siblings: defaultdict[object, list[int]] = defaultdict(list)
    for index, call in enumerate(graph.calls):
        if call.name in _OPERANDS and index in kinds and kinds[index].work.kind is Kind.LINEAR:
            siblings[_shared_input(graph, index, call, kinds[index].work.direction)].append(index)
    kernels: list[_Kernel] = []
    for members in siblings.values():
        direction = kinds[members[0]].work.direction
        whole = _product_kernel(graph, members, direction, readers, fused)
        if len(members) == 1 or ("projections" in fused and _is_legal(graph, whole, readers, exchanges)):
            kernels.append(whole)
        else:
            kernels += [_product_kernel(graph, [each], direction, readers, fused) for each in members]
    legal = [k for k in kernels if len(k.members) > 1 and _is_legal(graph, k, readers, exchanges)]
    for kernel in legal:  # what only renames a result moves with it
        made = {buffer for index in kernel.members for buffer in graph.calls[index].writes}
        renaming = {index for buffer in made for index in views[buffer] if index <= kernel.position}
        renaming |= {index for buffer in kernel.inside for index in views[buffer]}
        kernel.members = sorted(renaming.union(kernel.members))
    return legal


def _shared_input(graph: Graph, index: int, call: Call, direction: Direction) -> object:
    """What products that can be joined have in common: the module around their layers and their input."""
    if direction is Direction.FORWARD:
        given = tuple(buffer for buffer in call.reads if graph.buffers[buffer].role not in _WEIGHTS)
        return direction, _parent(call.module), call.phase, given
    if call.forward is None:
        return index
    of = graph.calls[call.forward]
    given = tuple(buffer for buffer in of.reads if graph.buffers[buffer].role not in _WEIGHTS)
    return direction, _parent(call.module), given


def _product_kernel(
    graph: Graph,
    products: Sequence[int],
    direction: Direction,
    readers: Mapping[int, Sequence[int]],
    fused: frozenset[str],
) -> _Kernel:
    """The kernel of some products: with the sums of their results, and with those into FP32 gradients."""
    members, inside = list(products), set()
    made = {buffer for index in products for buffer in graph.calls[index].writes}
    if direction is Direction.INPUT_GRADIENT and len(products) > 1:
        for index in sorted({reader for buffer in made for reader in readers[buffer]}):
            call = graph.calls[index]
            if call.name == "aten.add" and set(call.reads) <= made:
                members.append(index)
                inside |= set(call.reads) - set(call.writes)
                made |= set(call.writes)
                more = [reader for buffer in call.writes for reader in readers[buffer]]
                for later in sorted(set(more)):
                    other = graph.calls[later]
                    if other.name == "aten.add" and set(other.reads) <= made and later not in members:
                        members.append(later)
                        inside |= set(other.reads) - set(other.writes)
                        made |= set(other.writes)
    if "accumulation" in fused:
        for buffer in sorted(made):
            for index in readers[buffer]:
                call = graph.calls[index]
                if call.name == "aten.add_" and _adds_to_gradient(graph, call) and index not in members:
                    members.append(index)
                    inside.add(buffer)
    members.sort()
    is_forward = direction is Direction.FORWARD
    return _Kernel(members, members[0] if is_forward else members[-1], inside=inside)


def _adds_to_gradient(graph: Graph, call: Call) -> bool:
    return any(graph.buffers[buffer].role is Role.GRADIENT for buffer in call.writes)


def _is_legal(
    graph: Graph, kernel: _Kernel, readers: Mapping[int, Sequence[int]], exchanges: Exchanges
) -> bool:
    """Whether all operands are there when the kernel runs, and no one needs its results earlier."""
    members, position = set(kernel.members), kernel.position
    for index in kernel.members:
        call = graph.calls[index]
        births = (graph.buffers[buffer].born for buffer in call.reads)
        if index > position and any(born > position and born not in members for born in births):
            return False
        for buffer in call.writes:
            if any(index < each <= position and each not in members for each in readers[buffer]):
                return False
    if any(each not in members for buffer in kernel.inside for each in readers[buffer]):
        return False
    return not any(
        (after in members and (before in members or before <= position))
        or (before in members and after >= position)
        for after, before in exchanges
    )


def _runs(
    graph: Graph,
    kinds: Mapping[int, Op],
    products: Sequence[_Kernel],
    fused: frozenset[str],
    exchanges: Exchanges,
) -> list[_Kernel]:
    """Runs of connected pointwise calls of one module, apart from products that were joined elsewhere."""
    moved = {index for kernel in products for index in kernel.members}
    stops = {kernel.position for kernel in products}
    breaks = sorted({each for after, before in exchanges for each in (after + 1, before)})
    scopes = _Scopes(graph, kinds)
    runs: list[_Kernel] = []
    run = _Run(graph, scopes, breaks)
    for index, call in enumerate(graph.calls):
        if index in moved and index not in stops:
            continue
        is_pointwise = index not in moved and _is_pointwise(call, kinds.get(index))
        if is_pointwise and call.nature is Nature.VIEW:
            run.pass_by(index, call)
            continue
        if index not in moved and run.sums_gradient(call):
            run.add(index, call)
            continue
        if not (is_pointwise and run.continues_with(index, call)):
            runs += run.kernels(fused)
            run = _Run(graph, scopes, breaks)
        if is_pointwise and not _adds_to_gradient(graph, call):
            run.add(index, call)
    return [*runs, *run.kernels(fused)]


class _Run:
    """Consecutive pointwise calls of one module, and the views between them."""

    def __init__(self, graph: Graph, scopes: _Scopes, breaks: Sequence[int]) -> None:
        self._graph, self._scopes, self._breaks = graph, scopes, breaks
        self._calls: list[int] = []
        self._scope = ""
        self._touched: set[int] = set()

    def add(self, index: int, call: Call) -> None:
        """One more call."""
        if not self._calls:
            self._scope = self._scopes.of(call)
        self._calls.append(index)
        self._touched.update(call.reads, call.writes)

    def pass_by(self, index: int, call: Call) -> None:
        """A view: no work, whatever it is of."""
        if self._calls:
            self._calls.append(index)
            if not self._touched.isdisjoint(call.reads):
                self._touched.update(call.writes)

    def sums_gradient(self, call: Call) -> bool:
        """Whether a call adds up the gradient of a norm's weight, say, that the run has summed."""
        is_sum = _adds_to_gradient(self._graph, call) and call.phase is Phase.BACKWARD
        return is_sum and not self._touched.isdisjoint(call.reads)

    def continues_with(self, index: int, call: Call) -> bool:
        """Whether a call belongs to the same kernel: of the same module, on what the run touches, and with
        no exchange between them."""
        if not self._calls or _adds_to_gradient(self._graph, call):
            return False
        first = self._graph.calls[self._calls[0]]
        return (
            self._scopes.of(call) == self._scope
            and (first.phase, first.recomputed) == (call.phase, call.recomputed)
            and (self._scopes.is_loss(self._scope) or not self._touched.isdisjoint(call.reads))
            and bisect_right(self._breaks, self._calls[-1]) == bisect_right(self._breaks, index)
        )

    def kernels(self, fused: frozenset[str]) -> Iterator[_Kernel]:
        """The kernel of the run, if its group is one of `fused`."""
        own = [index for index in self._calls if self._graph.calls[index].nature is not Nature.VIEW]
        if len(own) < 2 or (part := self._scopes.part(self._scope, own)) not in fused:
            return
        if part != "softmax" or _is_half(self._graph, own[0]):
            yield _Kernel(self._calls[: self._calls.index(own[-1]) + 1], own[-1], part)


def _is_half(graph: Graph, call: int) -> bool:
    """Whether a call reads half precision: Megatron's kernel of mask and softmax takes nothing else."""
    specs = (spec for spec in graph.calls[call].inputs if spec != NO_TENSOR)
    return any(graph.specs[spec].dtype in _HALF for spec in specs)


def _is_pointwise(call: Call, op: Op | None) -> bool:
    if call.phase is Phase.OPTIMIZER:
        return False
    if op is None or call.nature is Nature.VIEW:
        return True
    return op.work.kind in _POINTWISE or call.name in _ALSO_POINTWISE


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


class _Scopes:
    """The module whose operators are fused together: a norm itself, else the module around a leaf."""

    def __init__(self, graph: Graph, kinds: Mapping[int, Op]) -> None:
        self._graph, self._kinds = graph, kinds
        self._types = {layer.path: layer.type for layer in graph.layers}
        of_kind: defaultdict[Kind, set[str]] = defaultdict(set)
        for index, op in kinds.items():
            of_kind[op.work.kind].add(self.of(graph.calls[index]))
        self._attentions = of_kind[Kind.ATTENTION] | (of_kind[Kind.SOFTMAX] & of_kind[Kind.MATMUL])
        self._losses = of_kind[Kind.LOSS]
        self._feeds = (of_kind[Kind.LINEAR] | of_kind[Kind.MATMUL]) - self._attentions
        products = (index for index, op in kinds.items() if op.work.kind in (Kind.LINEAR, Kind.MATMUL))
        self._head = max(
            (index for index in products if graph.calls[index].phase is Phase.FORWARD), default=-1
        )

    @property
    def has_attention(self) -> bool:
        """Whether there is a transformer in the model."""
        return bool(self._attentions)

    def of(self, call: Call) -> str:
        """The module that a call is fused in."""
        kind = self._types.get(call.module)
        return call.module if kind is None or _is_norm(kind) else _parent(call.module)

    def is_loss(self, scope: str) -> bool:
        """Whether the loss is computed in a module: labels are prepared between its operators."""
        return scope in self._losses

    def _is_after_head(self, calls: Collection[int]) -> bool:
        """Whether calls of the forward pass follow its last product: what a model adds to its embeddings, or
        to their gradients, may be computed in the module of the loss, too."""
        return min(calls) > self._head and all(
            self._graph.calls[each].phase is Phase.FORWARD for each in calls
        )

    def part(self, scope: str, calls: Collection[int]) -> str:
        """The group that a run of calls belongs to."""
        kinds = {self._kinds[index].work.kind for index in calls if index in self._kinds}
        if _is_norm(self._types.get(scope, "")) or Kind.NORMALISATION in kinds:
            return "norm"
        if Kind.LOSS in kinds or (scope in self._losses and self._is_after_head(calls)):
            return "loss"
        if scope in self._attentions:
            return "softmax" if Kind.SOFTMAX in kinds else "rope"
        if scope in self._feeds:
            return "activation"
        return "residual" if scope else "outside"  # of no module: the engine's own copies of gradients


def _is_norm(kind: str) -> bool:
    return "Norm" in kind


def _rebuilt(chosen: Rematerialisation, kernels: Sequence[_Kernel]) -> Fusion:
    """The graph with its kernels in the place of their members."""
    graph = chosen.graph
    readers: defaultdict[int, list[int]] = defaultdict(list)
    for index, call in enumerate(graph.calls):
        for buffer in call.reads:
            readers[buffer].append(index)
    kernel_of = {index: kernel for kernel in kernels for index in kernel.members}
    calls: list[Call] = []
    place = [0] * (len(graph.calls) + 1)
    for index, call in enumerate(graph.calls):
        kernel = kernel_of.get(index)
        if kernel is None and index in chosen.added:
            kernel = _Kernel([index], index, "recomputation")
        if kernel is None:
            place[index] = len(calls)
            calls.append(call)
        elif index == kernel.position:
            for member in kernel.members:
                place[member] = len(calls)
            calls.append(
                _fuse_call(chosen, kernel, readers) if kernel.part else _products_call(graph, kernel)
            )
    place[-1] = len(calls)
    calls = [call if call.forward is None else call._replace(forward=place[call.forward]) for call in calls]
    return Fusion(_with_calls(graph, calls, place), tuple(place), chosen.retyped)


def _fuse_call(chosen: Rematerialisation, kernel: _Kernel, readers: Mapping[int, Sequence[int]]) -> Call:
    graph, first_index, members = chosen.graph, kernel.members[0], set(kernel.members)
    own = [index for index in kernel.members if graph.calls[index].nature is not Nature.VIEW]
    written: set[int] = set()
    reads: dict[int, None] = {}
    for index in own:
        call = graph.calls[index]
        reads.update(dict.fromkeys(buffer for buffer in call.reads if buffer not in written))
        written.update(call.writes)
    kept = sorted(
        buffer
        for buffer in written
        if graph.buffers[buffer].dies >= len(graph.calls)
        or any(index > first_index and index not in members for index in readers[buffer])
    )
    first = graph.calls[own[0]]
    names = [name for index in own for name in (*chosen.added.get(index, ()), graph.calls[index].name)]
    return first._replace(
        name=FUSED,
        inputs=tuple(graph.buffers[buffer].spec for buffer in reads),
        outputs=tuple(graph.buffers[buffer].spec for buffer in kept),
        reads=tuple(reads),
        writes=tuple(kept),
        settings={"fused": names, "part": kernel.part},
        nature=Nature.POINTWISE,
    )


def _products_call(graph: Graph, kernel: _Kernel) -> Call:
    """Products side by side: operands of each in turn, and the results that outlive the kernel."""
    products = [index for index in kernel.members if graph.calls[index].name in _OPERANDS]
    others = [index for index in kernel.members if index not in products]
    reads: dict[int, None] = {}
    for index in products:
        reads.update(dict.fromkeys(graph.calls[index].reads))
    written = [buffer for index in kernel.members for buffer in graph.calls[index].writes]
    writes = [buffer for buffer in dict.fromkeys(written) if buffer not in kernel.inside]
    for index in others:  # a gradient that is added to is read as well
        reads.update(dict.fromkeys(each for each in graph.calls[index].reads if each in writes))
    first = graph.calls[products[0]]
    if len(products) == 1:
        name, operands = first.name, first.inputs
        settings = first.settings
    else:
        name, operands = (
            PRODUCTS,
            tuple(
                spec
                for index in products
                for spec in graph.calls[index].inputs[: _OPERANDS[graph.calls[index].name]]
            ),
        )
        settings = {"operands": [_OPERANDS[graph.calls[index].name] for index in products]}
    return first._replace(
        name=name,
        inputs=operands,
        outputs=tuple(graph.buffers[buffer].spec for buffer in writes),
        reads=tuple(reads),
        writes=tuple(writes),
        settings=settings,
    )


def _with_calls(graph: Graph, calls: Sequence[Call], place: Sequence[int]) -> Graph:
    """The graph with other calls: buffers that none touches are left out, lives follow the calls."""
    uses: dict[int, int] = {}
    for index, call in enumerate(calls):
        uses.update(dict.fromkeys((*call.reads, *call.writes), index))
    kept = [index for index, buffer in enumerate(graph.buffers) if buffer.born < 0 or index in uses]
    number = {old: new for new, old in enumerate(kept)}
    count = len(graph.calls)
    buffers = []
    for index in kept:
        buffer = graph.buffers[index]
        born = buffer.born if buffer.born < 0 else place[min(buffer.born, count)]
        dies = buffer.dies
        if dies >= 0:
            dies = place[-1] if dies >= count else max(place[dies], uses.get(index, -1))
        buffers.append(buffer._replace(born=born, dies=dies))
    renumbered = tuple(
        call._replace(
            reads=tuple(number[each] for each in call.reads if each in number),
            writes=tuple(number[each] for each in call.writes if each in number),
        )
        for call in calls
    )
    return replace(graph, calls=renumbered, buffers=tuple(buffers))

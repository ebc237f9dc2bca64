"""The optimizer's part of a step, written for any list of trained parameters.

PyTorch's optimizers run over lists of tensors (`foreach`), so their calls follow from the list: one line of
`UPDATES` is one call over all parameters. Letters are the weights `p`, the gradients `g`, the state that an
optimizer keeps, and temporaries, which a line makes (`t = sqrt v`) and which live until the last call. A name
that ends with `_` changes its first argument. Tests compare each with a trace.

Optimizers whose calls depend on shapes (Adafactor, Muon) are not here: their steps are traced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from foretrain.workloads.graph import NO_TENSOR, Buffer, Call, Graph, Nature, Phase, Role, Spec
from foretrain.workloads.options import QUANTISED_BLOCK, QUANTISED_FROM, ResolvedOptions

SCALAR = "step"
"""A state that is one number for each parameter, in FP32."""


class UpdateRule(NamedTuple):
    """State for each parameter, by letter, and the calls."""

    state: tuple[str, ...]
    lines: tuple[str, ...]


_ADAM = ("lerp_ m g", "mul_ v", "addcmul_ v g g", "t = sqrt v", "div_ t", "add_ t", "addcdiv_ p m t")
_FUSED_ADAMW = UpdateRule((SCALAR, "m", "v"), ("_fused_adamw_ p g m v step",))
UPDATES: Mapping[str, UpdateRule] = {
    "sgd": UpdateRule((), ("add_ p g",)),
    "momentum": UpdateRule(("m",), ("mul_ m", "add_ m g", "add_ p m")),
    "nesterov": UpdateRule(("m",), ("mul_ m", "add_ m g", "add_ g m", "add_ p g")),
    "adam": UpdateRule(("m", "v"), _ADAM),
    "adamw": UpdateRule(("m", "v"), ("mul_ p", *_ADAM)),
    "adamw-fused": _FUSED_ADAMW,
    "paged-adamw": _FUSED_ADAMW,
    "nadam": UpdateRule(("m", "v"), (*_ADAM[:-1], "addcdiv_ p g t", "addcdiv_ p m t")),
    "radam": UpdateRule(
        ("m", "v"),
        (
            *_ADAM[:4],
            "add_ t",
            "div_ t",
            "reciprocal_ t",
            "add_ t",
            "addcmul_ p m t",
        ),
    ),
    "adamax": UpdateRule(
        ("m", "v"), ("lerp_ m g", "mul_ v", "t = abs g", "add_ t", "maximum_ v t", "addcdiv_ p m v")
    ),
    "adagrad": UpdateRule(("v",), ("addcmul_ v g g", "t = sqrt v", "add_ t", "u = mul g", "addcdiv_ p u t")),
    "adadelta": UpdateRule(
        ("v", "d"),
        (
            "mul_ v",
            "addcmul_ v g g",
            "t = add v",
            "sqrt_ t",
            "u = add d",
            "sqrt_ u",
            "div_ u t",
            "mul_ u g",
            "mul_ d",
            "addcmul_ d u u",
            "add_ p u",
        ),
    ),
    "rmsprop": UpdateRule(("v",), ("mul_ v", "addcmul_ v g g", "t = sqrt v", "add_ t", "addcdiv_ p g t")),
    "lion": UpdateRule(("m",), ("t = lerp g m", "sign_ t", "mul_ p", "add_ p t", "lerp_ m g")),
}
"""torch.optim of PyTorch 2.x with `foreach`, and the optimizers of `tracing.optimizers`."""
EIGHT_BIT: Mapping[str, int] = {"adamw-8bit": 2, "lion-8bit": 1, "paged-adamw-8bit": 2, "paged-lion-8bit": 1}
"""Moments of the optimizers that keep them in eight bits, and update one parameter after another."""


class NoUpdate(Exception):
    """An optimizer whose calls are not written down for these parameters."""


@dataclass(frozen=True)
class _Trained:
    """A parameter as the optimizer sees it: buffers and spec of what it changes, and of its gradient."""

    name: str
    weights: int
    gradient: int | None
    spec: int


class _Update:
    """An optimizer's part being written, behind the calls of a graph."""

    def __init__(self, graph: Graph, state: int) -> None:
        """`state` is the number of buffers that stand before those the step makes."""
        self.specs = list(graph.specs)
        # Only parameters': an activation that has the shape of one at this batch size has another at others
        own = (buffer.spec for buffer in graph.buffers if buffer.role is Role.PARAMETER)
        self._numbers = {graph.specs[number]: number for number in own}
        self.state: list[Buffer] = []
        self.made: list[Buffer] = []
        self.calls: list[Call] = []
        self._first_state = state
        self._first_call = len(graph.calls)

    def spec(self, shape: tuple[int, ...], dtype: str) -> int:
        """The number of a spec, added if it is new."""
        spec = Spec(shape, dtype)
        if spec not in self._numbers:
            self._numbers[spec] = len(self.specs)
            self.specs.append(spec)
        return self._numbers[spec]

    def keep(self, name: str, spec: int) -> int:
        """Another buffer of state; its end is set when all calls are known."""
        self.state.append(Buffer(spec, -1, -1, Role.OPTIMIZER_STATE, name))
        return self._first_state + len(self.state) - 1

    def call(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        reads: Sequence[int],
        writes: Sequence[int],
    ) -> None:
        """One more call of the optimizer."""
        self.calls.append(
            Call(
                name,
                Phase.OPTIMIZER,
                "",
                tuple(inputs),
                tuple(outputs),
                tuple(dict.fromkeys(reads)),
                tuple(dict.fromkeys(writes)),
                {},
                Nature.OTHER,
            )
        )


def with_update(graph: Graph, options: ResolvedOptions) -> Graph:
    """A graph without an optimizer, with that of the options; raises `NoUpdate`.

    `specs` keep their numbers; new ones stand behind them, and do not depend on the batch.
    """
    if options.optimizer is None or options.forward_only or not graph.trained:
        return graph
    name = options.optimizer
    if name not in UPDATES and name not in EIGHT_BIT:
        raise NoUpdate(name)
    owned = _count_owned(graph)
    update = _Update(graph, owned)
    parameters = _list_trained(graph)
    dtypes = {graph.specs[each.spec].dtype for each in parameters}
    if len(dtypes) > 1:
        raise NoUpdate(f"{name} of weights in {', '.join(sorted(dtypes))}")
    if options.master_weights:
        updated, states = _keep_masters(graph, update, parameters, name)
    else:
        updated = parameters
        states = [_keep_state(update, each, name) for each in parameters]
    shift = len(update.state)

    updated = [
        each
        if each.gradient is None or each.gradient < owned
        else replace(each, gradient=each.gradient + shift)
        for each in updated
    ]
    made_from = len(graph.buffers) + shift
    if options.master_weights:
        if not options.adds_up_in_fp32:
            updated = _raise_gradients(graph, update, parameters, updated, made_from)
        raised = len(update.made)
    _write(update, updated, states, name, made_from)
    if options.master_weights:
        last = len(graph.calls) + len(update.calls)
        update.made[:raised] = [each._replace(dies=last) for each in update.made[:raised]]
        own = [each.spec for each in parameters]
        masters = [each.spec for each in updated]
        weights = [each.weights for each in parameters]
        update.call(
            "aten._foreach_copy_",
            [*own, *masters],
            [NO_TENSOR],
            [*weights, *(each.weights for each in updated)],
            weights,
        )
    return _join(graph, update, owned, shift)


def _join(graph: Graph, update: _Update, owned: int, shift: int) -> Graph:
    old_end = len(graph.calls)
    end = old_end + len(update.calls)

    def lasting(buffer: Buffer) -> Buffer:
        return buffer._replace(dies=end) if buffer.dies >= old_end else buffer

    calls = graph.calls
    if shift:
        calls = tuple(
            [
                call._replace(
                    reads=tuple([each + shift if each >= owned else each for each in call.reads]),
                    writes=tuple([each + shift if each >= owned else each for each in call.writes]),
                )
                for call in calls
            ]
        )
    return replace(
        graph,
        specs=tuple(update.specs),
        calls=(*calls, *update.calls),
        buffers=(
            *map(lasting, graph.buffers[:owned]),
            *(each._replace(dies=end) for each in update.state),
            *map(lasting, graph.buffers[owned:]),
            *update.made,
        ),
    )


def _count_owned(graph: Graph) -> int:
    """Buffers that are there before the step; lasting FP32 gradients are made with the optimizer."""
    before = (Role.PARAMETER, Role.MODULE_BUFFER, Role.INPUT)
    for number, buffer in enumerate(graph.buffers):
        if buffer.role not in before and not (buffer.role is Role.GRADIENT and buffer.born == 0):
            return number
    return len(graph.buffers)


def _list_trained(graph: Graph) -> list[_Trained]:
    gradients = {
        buffer.name: number for number, buffer in enumerate(graph.buffers) if buffer.role is Role.GRADIENT
    }
    return [
        _Trained(buffer.name, number, gradients.get(buffer.name), buffer.spec)
        for number, buffer in enumerate(graph.buffers)
        if buffer.role is Role.PARAMETER and buffer.name in graph.trained_names
    ]


def _keep_masters(
    graph: Graph, update: _Update, parameters: Sequence[_Trained], name: str
) -> tuple[list[_Trained], list[list[tuple[int, int]]]]:
    """FP32 copies of the weights, each followed by its own state."""
    masters, states = [], []
    for each in parameters:
        full = update.spec(graph.specs[each.spec].shape, "float32")
        masters.append(replace(each, weights=update.keep(each.name, full), spec=full))
        states.append(_keep_state(update, masters[-1], name))
    return masters, states


def _keep_state(update: _Update, parameter: _Trained, name: str) -> list[tuple[int, int]]:
    """Buffer and spec of each state of a parameter."""
    shape, dtype = update.specs[parameter.spec]
    if name in EIGHT_BIT:
        elements = update.specs[parameter.spec].elements
        if elements < QUANTISED_FROM:
            specs = [update.spec(shape, "float32")]
        else:
            scales = (-(-elements // QUANTISED_BLOCK),)
            specs = [update.spec(shape, "uint8"), update.spec(scales, "float32")]
        specs *= EIGHT_BIT[name]
    else:
        specs = [
            update.spec((), "float32") if letter == SCALAR else update.spec(shape, dtype)
            for letter in UPDATES[name].state
        ]
    return [(update.keep(parameter.name, spec), spec) for spec in specs]


def _raise_gradients(
    graph: Graph,
    update: _Update,
    parameters: Sequence[_Trained],
    masters: Sequence[_Trained],
    made_from: int,
) -> list[_Trained]:
    """Half-precision gradients copied to FP32, one call each."""
    raised = []
    for own, master in zip(parameters, masters, strict=True):
        if master.gradient is None:
            raised.append(master)
            continue
        copy = made_from + len(update.made)
        at = len(graph.calls) + len(update.calls)
        update.made.append(Buffer(master.spec, at, at, Role.TEMPORARY))
        update.call("aten._to_copy", [own.spec], [master.spec], [master.gradient], [copy])
        raised.append(replace(master, gradient=copy))
    return raised


def _write(
    update: _Update,
    parameters: Sequence[_Trained],
    states: Sequence[Sequence[tuple[int, int]]],
    name: str,
    made_from: int,
) -> None:
    """The calls of the optimizer itself, over the parameters that have a gradient."""
    chosen = [
        (each, state) for each, state in zip(parameters, states, strict=True) if each.gradient is not None
    ]
    if not chosen:
        return
    if name in EIGHT_BIT:
        for each, state in chosen:
            assert each.gradient is not None
            kept = [buffer for buffer, _ in state]
            update.call(
                "foretrain.update_8bit",
                [each.spec, each.spec, *(spec for _, spec in state)],
                [NO_TENSOR],
                [each.weights, each.gradient, *kept],
                [each.weights, *kept],
            )
        return
    rule = UPDATES[name]
    buffers: dict[str, list[int]] = {
        "p": [each.weights for each, _ in chosen],
        "g": [each.gradient for each, _ in chosen if each.gradient is not None],
    }
    specs = {letter: [each.spec for each, _ in chosen] for letter in "pg"}
    for place, letter in enumerate(rule.state):
        buffers[letter] = [state[place][0] for _, state in chosen]
        specs[letter] = [state[place][1] for _, state in chosen]
    last = update._first_call + len(update.calls) + len(rule.lines) - 1
    for line in rule.lines:
        made, _, text = line.rpartition(" = ")
        operator, *letters = text.split()
        reads = [buffer for letter in letters for buffer in buffers[letter]]
        inputs = [spec for letter in letters for spec in specs[letter]]
        full = f"aten.{operator}" if operator.startswith("_") else f"aten._foreach_{operator}"
        if made:
            at = update._first_call + len(update.calls)
            specs[made] = specs["p"]
            first = made_from + len(update.made)
            buffers[made] = list(range(first, first + len(chosen)))
            update.made += [Buffer(spec, at, last, Role.TEMPORARY) for spec in specs[made]]
            update.call(full, inputs, specs[made], reads, buffers[made])
        else:
            changed = letters[:1] if not operator.startswith("_fused") else letters[:4]
            written = [buffer for letter in changed for buffer in buffers[letter]]
            update.call(full, inputs, [NO_TENSOR], reads, written)

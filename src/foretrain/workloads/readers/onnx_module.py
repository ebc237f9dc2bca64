"""An ONNX graph as a torch module.

Values are of two sorts. Those that derive from shapes and integer constants alone are computed for real, on
the host: they decide the shapes of the rest. All others are data, and may be without any.

LSTM, GRU and RNN nodes become torch's fused recurrent layers. ONNX stacks the gates of an LSTM as input,
output, forget, cell (torch: input, forget, cell, output) and those of a GRU as update, reset, hidden (torch:
reset, update, hidden); its results have a dimension of directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

from foretrain.errors import InvalidData, InvalidRequest
from foretrain.workloads.readers.onnx_operators import LAYERS, MOVES, OnnxNode, Operator, torch_dtype

_GATE_ORDER: Mapping[str, tuple[int, ...]] = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
_LAYERS: Mapping[str, Any] = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
RECURRENT = frozenset(_LAYERS)


class Recurrent(nn.Module):
    """One recurrent node; `weights` are W, R and, if there are biases, B, as the file holds them."""

    def __init__(self, node: OnnxNode, weights: list[Tensor]) -> None:
        super().__init__()
        _check(node)
        hidden, bidirectional = node.get("hidden_size"), node.get("direction", "forward") == "bidirectional"
        self.is_lstm = node.type == "LSTM"
        self.directions = 2 if bidirectional else 1
        self.layer = _LAYERS[node.type](
            weights[0].shape[2], hidden, bias=len(weights) > 2, bidirectional=bidirectional
        )
        order = _GATE_ORDER[node.type]
        with torch.no_grad():
            for direction in range(self.directions):
                suffix = "_reverse" if direction else ""
                for name, stacked in _by_name(weights, direction, len(order) * hidden).items():
                    getattr(self.layer, name + suffix).copy_(_reorder(stacked, order))

    def forward(
        self,
        x: Tensor,
        _weight: Any = None,
        _recurrence: Any = None,
        _bias: Any = None,
        _lengths: Any = None,
        state: Tensor | None = None,
        cell: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        start: Any = state
        if self.is_lstm and state is not None and cell is not None:
            start = (state, cell)
        out, last = self.layer(x, start)
        steps, batch, _ = out.shape
        by_direction = out.reshape(steps, batch, self.directions, -1).transpose(1, 2)
        return (by_direction, *last) if self.is_lstm else (by_direction, last)


def _check(node: OnnxNode) -> None:
    direction = node.get("direction", "forward")
    if direction not in ("forward", "bidirectional"):
        raise InvalidRequest(f"an ONNX {node.type} that runs in direction {direction!r} cannot be traced")
    if node.type == "GRU" and not node.get("linear_before_reset", 0):
        raise InvalidRequest("an ONNX GRU with linear_before_reset=0 is not supported by torch.nn.GRU")
    if node.get("layout", 0):
        raise InvalidRequest(f"an ONNX {node.type} with the batch first (layout 1) cannot be traced")


def _by_name(weights: list[Tensor], direction: int, rows: int) -> dict[str, Tensor]:
    tensors = {"weight_ih_l0": weights[0][direction], "weight_hh_l0": weights[1][direction]}
    if len(weights) > 2:
        both = weights[2][direction]
        tensors |= {"bias_ih_l0": both[:rows], "bias_hh_l0": both[rows:]}
    return tensors


def _reorder(stacked: Tensor, order: tuple[int, ...]) -> Tensor:
    gates = stacked.chunk(len(order))
    return torch.cat([gates[index] for index in order])


OPERATORS: Mapping[str, Operator] = {**LAYERS, **MOVES}
"""Those that are functions of their arguments."""
KNOWN = frozenset(OPERATORS) | RECURRENT
"""Those, and the recurrent ones, which hold their weights."""

__all__ = ["KNOWN", "OPERATORS", "OnnxNode", "torch_dtype"]


_ALWAYS_HOST = frozenset({"Shape", "Size", "Constant"})
_STATISTICS = {"BatchNormalization": (3, 4)}
"""Inputs that are running statistics rather than weights."""
_SETTINGS = {"Clip": (1, 2), "Pad": (2,), "Resize": (1, 2), "Dropout": (1,), "Upsample": (1,)}
"""Inputs of floating-point type that are settings rather than weights."""


class OnnxModule(nn.Module):
    """Runs the nodes of an ONNX graph in order; floating-point initializers are its parameters.

    On the default device `meta` the weights are not read. `file` is where external data would lie beside.
    """

    def __init__(self, model: Any, file: Path) -> None:
        super().__init__()
        graph = model.graph
        self._folder = str(file.parent)
        self._opset = max(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
        initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._inputs = [value.name for value in graph.input if value.name not in initializers]
        self._outputs = [value.name for value in graph.output]
        self._nodes = [OnnxNode(node.op_type, _attributes(node), self._opset) for node in graph.node]
        self._wiring = [(tuple(node.input), tuple(node.output)) for node in graph.node]
        self._host: dict[str, Tensor] = {}
        self._attribute_of: dict[str, str] = {}
        self._recurrent: dict[int, str] = {}
        consumed = self._add_recurrent(initializers)
        self._add_initializers(initializers, consumed)
        self._last_use = self._count_uses()

    # Construction

    def _add_recurrent(self, initializers: dict[str, Any]) -> set[str]:
        """Give each recurrent node its weights in torch's layout; returns the initializers they hold."""
        consumed: set[str] = set()
        for index, (node, (inputs, _)) in enumerate(zip(self._nodes, self._wiring, strict=True)):
            if node.type in RECURRENT:
                names = [name for name in inputs[1:4] if name]
                missing = [name for name in names if name not in initializers]
                if missing:
                    raise InvalidRequest(
                        f"the weights {missing} of an ONNX {node.type} are computed, not stored"
                    )
                self._recurrent[index] = f"recurrent_{index}"
                weights = [self._read(initializers[name]) for name in names]
                self.add_module(self._recurrent[index], Recurrent(node, weights))
                consumed.update(names)
        return consumed

    def _add_initializers(self, initializers: dict[str, Any], consumed: set[str]) -> None:
        statistics, settings = self._fed_to(_STATISTICS), self._fed_to(_SETTINGS)
        for number, (name, tensor) in enumerate(initializers.items()):
            attribute = f"initializer_{number}"
            if name in consumed:
                continue
            is_float = torch_dtype(tensor.data_type).is_floating_point
            trained = is_float and len(tensor.dims) > 0 and name not in settings
            if trained and name not in statistics:
                self.register_parameter(attribute, nn.Parameter(self._read(tensor)))
            elif trained:
                self.register_buffer(attribute, self._read(tensor))
            else:
                self._host[name] = self._real(tensor)
                continue
            self._attribute_of[name] = attribute

    def _fed_to(self, positions_by_type: Mapping[str, tuple[int, ...]]) -> set[str]:
        return {
            inputs[position]
            for node, (inputs, _) in zip(self._nodes, self._wiring, strict=True)
            for position in positions_by_type.get(node.type, ())
            if position < len(inputs)
        }

    def _count_uses(self) -> dict[str, int]:
        """For each value the last node that reads it, after which it is let go."""
        last = {name: index for index, (inputs, _) in enumerate(self._wiring) for name in inputs}
        return last | dict.fromkeys(self._outputs, len(self._nodes))

    def _read(self, tensor: Any) -> Tensor:
        """An initializer on the default device; on meta only its shape is looked at."""
        if torch.get_default_device().type == "meta":
            return torch.empty(tuple(tensor.dims), dtype=torch_dtype(tensor.data_type))
        return self._real(tensor)

    def _real(self, tensor: Any) -> Tensor:
        try:
            array = numpy_helper.to_array(tensor, self._folder)
        except (OSError, ValueError) as error:
            raise InvalidData(tensor.name, f"cannot be read from the ONNX file: {error}") from error
        return _from_numpy(array)

    # JobOptions

    def forward(self, *inputs: Tensor) -> Any:
        values: dict[str, Tensor] = dict(zip(self._inputs, inputs, strict=True))
        values |= {name: getattr(self, attribute) for name, attribute in self._attribute_of.items()}
        host = dict(self._host)
        for index, (node, (names, produced)) in enumerate(zip(self._nodes, self._wiring, strict=True)):
            arguments = [values[name] if name in values else host.get(name) for name in names]
            results = self._run(index, node, arguments, inputs[0].device)
            is_host = node.type in _ALWAYS_HOST or all(name in host for name in names if name)
            store = host if is_host else values
            store.update((name, value) for name, value in zip(produced, results, strict=False) if name)
            for name in names:
                if self._last_use.get(name) == index:
                    values.pop(name, None)
        outputs = tuple(values[name] if name in values else host[name] for name in self._outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def _run(
        self, index: int, node: OnnxNode, arguments: list[Tensor | None], device: torch.device
    ) -> tuple[Tensor, ...]:
        if index in self._recurrent:
            return tuple(getattr(self, self._recurrent[index])(*arguments))
        implementation = OPERATORS[node.type]
        result = implementation.run(node, implementation.placed(arguments, device), self.training)
        return result if isinstance(result, tuple) else (result,)


def _attributes(node: Any) -> dict[str, Any]:
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {name: _plain(value) for name, value in attributes.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(value, "data_type"):
        return _from_numpy(numpy_helper.to_array(value))
    return list(value) if isinstance(value, list | tuple) else value


def _from_numpy(array: Any) -> Tensor:
    """A tensor on the host, whatever the default device; its own copy, so that it may be written."""
    return torch.from_numpy(np.array(array))

"""ONNX LSTM, GRU and RNN nodes as torch's fused recurrent layers.

ONNX stacks the gates of an LSTM as input, output, forget, cell (torch: input, forget, cell, output) and those
of a GRU as update, reset, hidden (torch: reset, update, hidden); its results have a dimension of directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from foretrain.errors import InvalidRequest
from foretrain.workloads.readers.onnx_node import Node

_GATE_ORDER: Mapping[str, tuple[int, ...]] = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
_LAYERS: Mapping[str, Any] = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
RECURRENT = frozenset(_LAYERS)


class Recurrent(nn.Module):
    """One recurrent node; `weights` are W, R and, if there are biases, B, as the file holds them."""

    def __init__(self, node: Node, weights: list[Tensor]) -> None:
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
                    getattr(self.layer, name + suffix).copy_(_reordered(stacked, order))

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


def _check(node: Node) -> None:
    direction = node.get("direction", "forward")
    if direction not in ("forward", "bidirectional"):
        raise InvalidRequest(f"an ONNX {node.type} that runs in direction {direction!r} cannot be traced")
    if node.type == "GRU" and not node.get("linear_before_reset", 0):
        raise InvalidRequest("an ONNX GRU that resets before its linear layer is none that torch has fused")
    if node.get("layout", 0):
        raise InvalidRequest(f"an ONNX {node.type} with the batch first (layout 1) cannot be traced")


def _by_name(weights: list[Tensor], direction: int, rows: int) -> dict[str, Tensor]:
    found = {"weight_ih_l0": weights[0][direction], "weight_hh_l0": weights[1][direction]}
    if len(weights) > 2:
        both = weights[2][direction]
        found |= {"bias_ih_l0": both[:rows], "bias_hh_l0": both[rows:]}
    return found


def _reordered(stacked: Tensor, order: tuple[int, ...]) -> Tensor:
    gates = stacked.chunk(len(order))
    return torch.cat([gates[index] for index in order])

"""All ONNX operators the interpreter knows, by type."""

from __future__ import annotations

from collections.abc import Mapping

from foretrain.workloads.readers.onnx_layers import LAYERS
from foretrain.workloads.readers.onnx_node import Node, Operator, torch_dtype
from foretrain.workloads.readers.onnx_recurrent import RECURRENT
from foretrain.workloads.readers.onnx_shapes import MOVES

OPERATORS: Mapping[str, Operator] = {**LAYERS, **MOVES}
"""Those that are functions of their arguments."""
KNOWN = frozenset(OPERATORS) | RECURRENT
"""Those, and the recurrent ones, which hold their weights."""

__all__ = ["KNOWN", "OPERATORS", "Node", "torch_dtype"]

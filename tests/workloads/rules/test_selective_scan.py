"""The selective scan: shapes, gradients and FLOP of one small scan, by hand."""

from __future__ import annotations

import torch

from foretrain.workloads.example import Example
from foretrain.workloads.graph import Role
from foretrain.workloads.ops import Kind
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.rules import operators
from foretrain.workloads.tracing.fused import selective_scan
from foretrain.workloads.tracing.step import trace

BATCH, WIDTH, TOKENS, STATES = 2, 3, 5, 4


class Scan(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(WIDTH, STATES))
        self.d = torch.nn.Parameter(torch.zeros(WIDTH))
        self.bias = torch.nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        scanned: torch.Tensor = selective_scan(x, x, self.a, b, c, D=self.d, z=x, delta_bias=self.bias)
        return scanned.sum()


def test_one_kernel_each_way() -> None:
    inputs = (
        torch.zeros(BATCH, WIDTH, TOKENS, requires_grad=True),
        torch.zeros(BATCH, STATES, TOKENS),
        torch.zeros(BATCH, STATES, TOKENS),
    )
    graph = trace(Example(Scan(), inputs, None, samples=BATCH), ResolvedOptions())
    forward, backward = (op.work for op in operators(graph) if op.work.kind is Kind.SCAN)
    assert forward.dims == {"batch": BATCH, "width": WIDTH, "tokens": TOKENS, "states": STATES}
    assert forward.flop == BATCH * WIDTH * TOKENS * (7 * STATES + 8)
    assert backward.flop == 3 * forward.flop
    gradients = {buffer.name for buffer in graph.buffers if buffer.role is Role.GRADIENT}
    assert gradients == {"a", "d", "bias"}

"""The selective scan of state-space models: h = exp(ΔA)·h + (Δu)·B, y = C·h + D·u, gated by silu(z)."""

from __future__ import annotations

from collections.abc import Mapping

from foretrain.workloads.ops import Kind, Work
from foretrain.workloads.rules.site import Rule, Site

_FLOP_PER_STATE = 7
"""Δ·A, its exponential, (Δu)·B, a multiply-add for h and one for C·h."""
_FLOP_PER_CHANNEL = 8
"""Δ + bias and softplus (2), Δ·u, a multiply-add of the skip, silu and product of the gate (3)."""
_BACKWARD = 3
"""States are computed again (1), then each multiply-add has two gradients (2)."""


def _scan(site: Site, times: int, first: int) -> tuple[Work, ...]:
    batch, width, tokens = site.input(first).shape
    states = site.input(first + 2).shape[-1]
    dims = {"batch": batch, "width": width, "tokens": tokens, "states": states}
    flop = float(times * batch * width * tokens * (_FLOP_PER_STATE * states + _FLOP_PER_CHANNEL))
    return (Work(Kind.SCAN, site.direction, dims, site.dtype, flop, site.read_bytes, site.write_bytes),)


RULES: Mapping[str, Rule] = {
    "foretrain.selective_scan": lambda site: _scan(site, 1, first=0),
    "foretrain.selective_scan_backward": lambda site: _scan(site, _BACKWARD, first=1),
}

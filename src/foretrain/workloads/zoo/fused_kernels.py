"""Norms that training frameworks fuse by hand, as one operator of the same traffic."""

from __future__ import annotations

from torch import nn


class FusedRMSNorm(nn.LayerNorm):
    """x / rms(x) · weight in one kernel: it reads, writes and saves what a layer norm without a bias does."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__(width, eps=eps, bias=False)

"""BERT-large as MLPerf's second phase trains it: the zoo's encoder, tokens predicted where they were masked.

Read as `mlperf_bert.py:masked_bert`, as a user's own model would be.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.zoo.transformers import Bert, BertConfig

_FACTS = tomllib.loads((Path(__file__).parent / "mlperf_facts.toml").read_text(encoding="utf-8"))["bert"]
_LARGE = BertConfig(layers=24, width=1024, heads=16, hidden=4096)


class MaskedBert(nn.Module):
    """BERT whose head sees `masked` tokens of each sequence; which ones does not change the cost."""

    def __init__(self, masked: int) -> None:
        super().__init__()
        self.bert = Bert(_LARGE, "sdpa")
        self.masked = masked

    def forward(self, ids: Tensor) -> Tensor:
        bert = self.bert
        positions = torch.arange(ids.size(1), device=ids.device)
        x = bert.tokens(ids) + bert.segments(torch.zeros_like(ids)) + bert.positions(positions)
        x = bert.dropout(bert.norm(x))
        for block in bert.blocks:
            x = block(x)
        chosen = x[:, : self.masked].flatten(0, 1)
        return functional.linear(bert.transform(chosen), bert.tokens.weight, bert.decoder_bias)


def masked_bert(batch: int, seq_len: int) -> tuple[nn.Module, Tensor, Callable[[Tensor], Tensor]]:
    """The model, token ids and the loss of the masked tokens."""
    masked = min(_FACTS["most_masked"], round(_FACTS["masked_share"] * seq_len))
    ids = torch.randint(_LARGE.vocabulary, (batch, seq_len))
    targets = torch.randint(_LARGE.vocabulary, (batch * masked,))
    return MaskedBert(masked), ids, lambda logits: functional.cross_entropy(logits, targets)

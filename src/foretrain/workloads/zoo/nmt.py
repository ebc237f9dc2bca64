"""LSTM translation with Luong attention. Luong et al., arXiv:1508.04025; sizes of OpenNMT-tf's NMT models.

The decoder's attention is computed for all steps after its LSTM, not fed back into the next step, so both
LSTMs run as one fused call each.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.tasks import sequence_to_sequence


class Seq2Seq(nn.Module):
    """Encoder LSTM (half as wide in each direction if it runs both ways), decoder LSTM, attention, output."""

    def __init__(
        self, vocabulary: int, embedding: int, width: int, layers: int, dropout: float, *, bidirectional: bool
    ) -> None:
        super().__init__()
        self.bidirectional = bidirectional
        self.source = nn.Embedding(vocabulary, embedding)
        self.target = nn.Embedding(vocabulary, embedding)
        self.encoder = nn.LSTM(
            embedding,
            width // 2 if bidirectional else width,
            layers,
            batch_first=True,
            dropout=dropout,
            bidirectional=bidirectional,
        )
        self.decoder = nn.LSTM(embedding, width, layers, batch_first=True, dropout=dropout)
        self.score = nn.Linear(width, width, bias=False)
        self.combine = nn.Linear(2 * width, width, bias=False)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, (hidden, cell) = self.encoder(self.source(source))
        state = (self._bridge(hidden), self._bridge(cell))
        decoded, _ = self.decoder(self.target(target), state)
        weights = (self.score(decoded) @ memory.transpose(1, 2)).softmax(dim=-1)
        attended = self.combine(torch.cat((weights @ memory, decoded), dim=-1))
        logits: Tensor = self.output(attended)
        return logits

    def _bridge(self, state: Tensor) -> Tensor:
        """The encoder's last state as the decoder's first: both directions of a layer side by side."""
        if not self.bidirectional:
            return state
        return torch.cat((state[0::2], state[1::2]), dim=-1)


def nmt(
    sizes: Sizes,
    *,
    vocabulary: int,
    embedding: int,
    width: int,
    layers: int,
    bidirectional: bool,
    dropout: float = 0.3,
) -> Example:
    """A recurrent translation model."""
    module = Seq2Seq(vocabulary, embedding, width, layers, dropout, bidirectional=bidirectional)
    return sequence_to_sequence(module, sizes, vocabulary=vocabulary)

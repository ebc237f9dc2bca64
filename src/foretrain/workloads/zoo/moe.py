"""Switch Transformers: T5 with a mixture of experts in every other layer. Fedus et al., arXiv:2101.03961.

Each token goes to the one expert its router likes best; an expert takes at most `capacity` tokens of each
sequence, in their order, and tokens beyond it skip the layer. The capacity is fixed, so no shape depends on
the data.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.t5 import T5, T5Config
from foretrain.workloads.zoo.tasks import sequence_to_sequence


class SwitchFeedForward(nn.Module):
    """Routes each token to one of several feed-forward networks and scales the answer by the router's trust.

    `balance` is the load-balancing loss of the last forward pass: experts · Σ (share of tokens · mean
    probability), 1 when all experts are used alike.
    """

    def __init__(self, config: T5Config, experts: int, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.router = nn.Linear(config.width, experts, bias=False)
        self.experts = nn.ModuleList(config.feed_forward() for _ in range(experts))
        self.balance: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        probability = self.router(x).softmax(dim=-1)
        trust, expert = probability.max(dim=-1)
        chosen = functional.one_hot(expert, len(self.experts))
        self.balance = (
            len(self.experts) * (chosen.float().mean(dim=(0, 1)) * probability.mean(dim=(0, 1))).sum()
        )

        kept = chosen * (chosen.cumsum(dim=1) <= self.capacity)
        filled, token = kept.transpose(1, 2).topk(min(self.capacity, x.size(1)), dim=-1)
        outputs = [
            network(x.gather(1, _across(slots, x)))
            for network, slots in zip(self.experts, token.unbind(1), strict=True)
        ]
        weight = filled.flatten(1) * trust.gather(1, token.flatten(1))
        output: Tensor = torch.cat(outputs, dim=1) * weight.unsqueeze(-1)
        return output.new_zeros(x.shape).scatter_add(1, _across(token.flatten(1), x), output)


def _across(token: Tensor, x: Tensor) -> Tensor:
    """Token indices (batch, slots) widened to every feature of `x`."""
    return token.unsqueeze(-1).expand(-1, -1, x.size(-1))


class Switch(nn.Module):
    """The text-to-text model; returns the logits and the mean load-balancing loss of its sparse layers."""

    def __init__(self, model: T5) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.model(source, target)
        sparse = [module for module in self.modules() if isinstance(module, SwitchFeedForward)]
        return logits, torch.stack([layer.balance for layer in sparse if layer.balance is not None]).mean()


def switch(
    sizes: Sizes,
    *,
    experts: int,
    capacity: int,
    sparse_step: int = 2,
    balance_weight: float = 0.01,
    **config: object,
) -> Example:
    """A Switch Transformer, sparse in each `sparse_step`-th layer; `config` has the fields of `T5Config`."""
    settings = T5Config(**config)  # type: ignore[arg-type]

    def feed_forward(layer: int) -> nn.Module:
        sparse = (layer + 1) % sparse_step == 0
        return SwitchFeedForward(settings, experts, capacity) if sparse else settings.feed_forward()

    module = Switch(T5(settings, sizes.attention, feed_forward))
    return sequence_to_sequence(
        module, sizes, vocabulary=settings.vocabulary, regulariser_weight=balance_weight
    )

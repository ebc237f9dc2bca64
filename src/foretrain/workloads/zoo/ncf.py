"""Neural collaborative filtering (NeuMF). He et al., arXiv:1708.05031; sizes of the MLPerf reference."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes


class NeuMF(nn.Module):
    """A product of user and item factors beside a perceptron on other embeddings, joined by one layer."""

    def __init__(self, users: int, items: int, factors: int, layers: Sequence[int]) -> None:
        super().__init__()
        half = layers[0] // 2
        self.user_factors = nn.Embedding(users, factors)
        self.item_factors = nn.Embedding(items, factors)
        self.user_features = nn.Embedding(users, half)
        self.item_features = nn.Embedding(items, half)
        perceptron: list[nn.Module] = []
        for inputs, outputs in pairwise(layers):
            perceptron += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.perceptron = nn.Sequential(*perceptron)
        self.score = nn.Linear(factors + layers[-1], 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        product = self.user_factors(user) * self.item_factors(item)
        features = torch.cat((self.user_features(user), self.item_features(item)), dim=-1)
        score: Tensor = self.score(torch.cat((product, self.perceptron(features)), dim=-1))
        return score.squeeze(-1)


def ncf(sizes: Sizes, *, users: int, items: int, factors: int, layers: Sequence[int]) -> Example:
    """NeuMF with pairs of a user and an item, each seen or not."""
    pairs = (torch.randint(users, (sizes.batch,)), torch.randint(items, (sizes.batch,)))
    seen = torch.randint(2, (sizes.batch,)).float()

    def loss(scores: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(scores, seen)

    return Example(NeuMF(users, items, factors, layers).train(), pairs, loss, samples=sizes.batch)

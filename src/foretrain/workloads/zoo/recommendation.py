"""Recommendation: embeddings of users, items and other categories, and perceptrons on them.

Neural collaborative filtering (NeuMF). He et al., arXiv:1708.05031; sizes of the MLPerf reference.

DLRM. Naumov et al., arXiv:1906.00091: dense features through a perceptron, categories through tables of
embeddings, the dot products of all pairs of them, another perceptron. Its second version in MLPerf Training
(DLRM-DCNv2) crosses features by low-rank products, x' = x0 · (W V x + b) + x (Wang et al., arXiv:2008.13535),
and sums several embeddings per category. Gradients of tables are dense, as those of `nn.EmbeddingBag` are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes

_DENSE_FEATURES = 13
"""Of the Criteo data, beside 26 categories."""


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


def _perceptron(sizes: Sequence[int], *, activate_last: bool) -> nn.Sequential:
    """Linear layers with ReLU between them, and behind the last one too if asked."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*(layers if activate_last else layers[:-1]))


class PairInteraction(nn.Module):
    """The dense features, and the dot products of all pairs of different features."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.features = features
        self.outputs = width + features * (features - 1) // 2

    def forward(self, features: Tensor) -> Tensor:
        products = torch.bmm(features, features.transpose(1, 2))
        rows, columns = torch.tril_indices(self.features, self.features, -1, device=features.device)
        return torch.cat((features[:, 0], products[:, rows, columns]), dim=1)


class CrossInteraction(nn.Module):
    """Low-rank crosses of all features with themselves."""

    def __init__(self, features: int, width: int, layers: int, rank: int) -> None:
        super().__init__()
        self.outputs = features * width
        self.down = nn.ModuleList(nn.Linear(self.outputs, rank, bias=False) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(rank, self.outputs) for _ in range(layers))

    def forward(self, features: Tensor) -> Tensor:
        first = x = features.flatten(1)
        for down, up in zip(self.down, self.up, strict=True):
            x = first * up(down(x)) + x
        return x


class Dlrm(nn.Module):
    """Dense features and categories to the logit of a click."""

    def __init__(
        self,
        tables: Sequence[int],
        width: int,
        bottom: Sequence[int],
        interaction: PairInteraction | CrossInteraction,
        top: Sequence[int],
    ) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for rows in tables)
        self.bottom = _perceptron((_DENSE_FEATURES, *bottom), activate_last=True)
        self.interaction = interaction
        self.top = _perceptron((interaction.outputs, *top, 1), activate_last=False)

    def forward(self, dense: Tensor, *categories: Tensor) -> Tensor:
        embedded = [table(ids) for table, ids in zip(self.tables, categories, strict=True)]
        features = torch.stack((self.bottom(dense), *embedded), dim=1)
        click: Tensor = self.top(self.interaction(features))
        return click.squeeze(-1)


def dlrm(
    sizes: Sizes,
    *,
    tables: Sequence[int],
    width: int,
    bottom: Sequence[int],
    top: Sequence[int],
    ids_per_sample: Sequence[int] | None = None,
    cross_layers: int = 0,
    cross_rank: int = 0,
) -> Example:
    """DLRM with clicks to predict; `ids_per_sample` is how many ids each category has, one by default."""
    features = 1 + len(tables)
    interaction = (
        CrossInteraction(features, width, cross_layers, cross_rank)
        if cross_layers
        else PairInteraction(features, width)
    )
    module = Dlrm(tables, width, bottom, interaction, top)
    many = ids_per_sample or [1] * len(tables)
    dense = torch.rand(sizes.batch, _DENSE_FEATURES)
    ids = (torch.randint(rows, (sizes.batch, count)) for rows, count in zip(tables, many, strict=True))
    clicked = torch.randint(2, (sizes.batch,)).float()

    def loss(clicks: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(clicks, clicked)

    return Example(module.train(), (dense, *ids), loss, samples=sizes.batch)

"""The models Sia timed."""

from __future__ import annotations

from calibration.datasets import sia_models
from foretrain.prediction.strategies.program import gradients


def test_parameters_are_those_of_the_published_networks() -> None:
    """ResNet-18 for CIFAR: 11,173,962; NeuMF on MovieLens-1M: embeddings of 160 numbers, and the layers."""
    found = {
        name: sum(item.elements for item in gradients(sia_models.graph(name, 4)))
        for name in ("resnet18", "ncf")
    }
    assert found["resnet18"] == 11_173_962
    tables = (6040 + 3706) * (32 + 128)
    layers = 256 * 128 + 128 + 128 * 64 + 64 + 64 * 32 + 32 + 64 + 1
    assert found["ncf"] == tables + layers


def test_longer_batches_are_padded_more() -> None:
    assert [sia_models.frames(batch) for batch in (1, 10, 640)] == [300, 440, 580]


def test_a_single_worker_does_more_on_each_gradient() -> None:
    assert sia_models.launches_per_gradient("resnet18", 1) == 25
    assert sia_models.launches_per_gradient("bert", 4) == 12 + 9 + 2

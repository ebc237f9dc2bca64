"""The example batch and the loss of each task that several families share.

Values are random where a zero would mislead: a thousand equal token ids make the gradient of an embedding
slower than real text does.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example, Loss
from foretrain.workloads.zoo.catalogue import Sizes


def image_classification(
    module: nn.Module, sizes: Sizes, *, classes: int, channels: int = 3, auxiliary_weight: float | None = None
) -> Example:
    """Square images, one class each; `auxiliary_weight` is that of each output after the module's first."""
    images = torch.rand(sizes.batch, channels, sizes.image_size, sizes.image_size)
    targets = torch.randint(classes, (sizes.batch,))
    main = cross_entropy(targets)
    loss = main if auxiliary_weight is None else _with_auxiliaries(main, auxiliary_weight)
    return Example(module.train(), (images,), loss, samples=sizes.batch)


def language_modelling(module: nn.Module, sizes: Sizes, *, vocabulary: int) -> Example:
    """Token ids, and as many targets: the ids shifted by one (causal) or the masked originals.

    Every position counts in the loss, as it does in causal training; the logits of masked language modelling
    are computed for every position too, and those not masked are merely ignored.
    """
    shape = (sizes.batch, sizes.seq_len)
    loss = cross_entropy(torch.randint(vocabulary, shape))
    return Example(
        module.train(),
        (torch.randint(vocabulary, shape),),
        loss,
        samples=sizes.batch,
        tokens=sizes.batch * sizes.seq_len,
    )


def text_classification(module: nn.Module, sizes: Sizes, *, vocabulary: int, classes: int) -> Example:
    """Token ids, one class for each sequence."""
    ids = torch.randint(vocabulary, (sizes.batch, sizes.seq_len))
    loss = cross_entropy(torch.randint(classes, (sizes.batch,)))
    return Example(module.train(), (ids,), loss, samples=sizes.batch, tokens=sizes.batch * sizes.seq_len)


def sequence_to_sequence(
    module: nn.Module,
    sizes: Sizes,
    *,
    vocabulary: int,
    label_smoothing: float = 0.0,
    regulariser_weight: float | None = None,
) -> Example:
    """Source ids and target ids, both of `seq_len`, with teacher forcing.

    With `regulariser_weight` the module returns its logits and a scalar, which is added so weighted.
    """
    shape = (sizes.batch, sizes.seq_len)
    inputs = (torch.randint(vocabulary, shape), torch.randint(vocabulary, shape))
    main = cross_entropy(torch.randint(vocabulary, shape), label_smoothing)
    loss = main if regulariser_weight is None else _with_regulariser(main, regulariser_weight)
    return Example(module.train(), inputs, loss, samples=sizes.batch, tokens=2 * sizes.batch * sizes.seq_len)


def cross_entropy(targets: Tensor, label_smoothing: float = 0.0) -> Loss:
    """Mean cross-entropy of logits whose last dimension is the class."""

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(
            logits.flatten(0, -2), targets.flatten(), label_smoothing=label_smoothing
        )

    return loss


def _with_auxiliaries(main: Loss, weight: float) -> Loss:
    """The loss of the first output plus `weight` times that of each other one."""

    def loss(outputs: tuple[Tensor, ...]) -> Tensor:
        final, *auxiliaries = outputs
        total = main(final)
        for auxiliary in auxiliaries:
            total = total + weight * main(auxiliary)
        return total

    return loss


def _with_regulariser(main: Loss, weight: float) -> Loss:
    """The loss of the logits plus `weight` times the scalar that came with them."""

    def loss(outputs: tuple[Tensor, Tensor]) -> Tensor:
        logits, regulariser = outputs
        return main(logits) + weight * regulariser

    return loss

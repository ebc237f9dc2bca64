"""Training of an Inspector: members of an ensemble, early stopping on models left out, left-out accuracy.

A member minimises the mean absolute error of the logarithms of the targets, over figures that were measured.
A few models are left out of its training to decide when to stop. Intervals come from what an Inspector
misses on models that it has not seen: each fold of models is predicted by a member trained on the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foretrain.errors import InvalidRequest
from foretrain.learning.resources.inputs import (
    NODE_FEATURES,
    OTHER_FEATURES,
    SampleTable,
    Scaling,
    repetitions_of,
    scaling_of,
    tensors_of,
)
from foretrain.learning.resources.options import InspectorOptions, InspectorTraining, need_torch_geometric
from foretrain.learning.resources.samples import TARGETS
from foretrain.store.runs import Floats

if TYPE_CHECKING:
    from foretrain.learning.resources.network import InspectorNetwork

Progress = Callable[[str], None]
Rows = NDArray[np.int64]
_FEWEST_MODELS = 4
"""Some are held out for validation; fewer would leave too few to learn from."""
_STOPPING_SHARE = 0.15
"""Share of the models that decide when a member stops."""
_CHECK_EVERY = 5
"""Epochs between looks at the validation error."""


@dataclass(frozen=True, eq=False)
class Member:
    """A trained network, how its features are scaled, and its epochs and processor seconds of training."""

    network: InspectorNetwork
    scaling: Scaling
    epochs: int
    seconds: float


def train_member(
    table: SampleTable,
    targets: Floats,
    models: Sequence[str],
    options: InspectorOptions,
    training: InspectorTraining,
    seed: int,
    start: Member | None = None,
    progress: Progress = lambda _: None,
) -> Member:
    """One member on all samples; one that starts from another is transferred, the rest of it frozen."""
    import torch

    torch.manual_seed(seed)
    fitted, watched = _stopping_split(models, seed)
    scaling = start.scaling if start is not None else scaling_of(table.rows(fitted))
    if start is not None:
        network = start.network.for_transfer()
    else:
        network = _new(table, options, training)
        if not options.uses_timeline:  # what the timeline would give: a place to start
            network.start_at(_means(np.log(targets[fitted] / table.figures[fitted])))
    began = time.process_time()
    best = _fit(network, table, scaling, targets, (fitted, watched), training, progress)
    return Member(network, scaling, best, time.process_time() - began)


def _means(values: Floats) -> Floats:
    """Means of the columns over what was measured; 0 without any."""
    known = np.isfinite(values)
    means: Floats = np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return means


def _new(table: SampleTable, options: InspectorOptions, training: InspectorTraining) -> InspectorNetwork:
    need_torch_geometric()
    from foretrain.learning.resources.network import InspectorNetwork

    repetitions = repetitions_of(table, options)
    return InspectorNetwork(
        options, repetitions, NODE_FEATURES, OTHER_FEATURES, len(TARGETS), training.dropout
    )


def _fit(
    network: InspectorNetwork,
    table: SampleTable,
    scaling: Scaling,
    targets: Floats,
    split: tuple[Rows, Rows],
    training: InspectorTraining,
    progress: Progress,
) -> int:
    """Train until the samples that are watched get no better; the network ends as it was at its best."""
    import copy

    import torch

    graphs, inputs = tensors_of(table, scaling)
    wanted = torch.tensor(np.log(targets / table.figures), dtype=torch.float32)
    known = torch.isfinite(wanted)
    wanted = torch.where(known, wanted, torch.zeros_like(wanted))
    fitted, watched = (torch.tensor(rows, dtype=torch.long) for rows in split)

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        off = network(graphs, inputs["others"][rows], inputs["graph_of"][rows]) - wanted[rows]
        loss: torch.Tensor = (off.abs() * known[rows]).sum() / known[rows].sum()
        return loss

    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=training.learning_rate, weight_decay=training.weight_decay)
    best, best_epoch, state = float("inf"), 0, copy.deepcopy(network.state_dict())
    for epoch in range(1, training.epochs + 1):
        network.train()
        optimizer.zero_grad()
        loss = loss_of(fitted)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        if epoch % _CHECK_EVERY:
            continue
        network.eval()
        with torch.no_grad():
            error = float(loss_of(watched))
        progress(f"epoch {epoch}, validation error {error:.3f}")
        if error < best - 1e-4:
            best, best_epoch, state = error, epoch, copy.deepcopy(network.state_dict())
        elif epoch - best_epoch >= training.patience:
            break
    network.load_state_dict(state)
    network.eval()
    return best_epoch


def _stopping_split(models: Sequence[str], seed: int) -> tuple[Rows, Rows]:
    """Samples to fit and samples to watch: of other models, or of no model apart where there are few."""
    names = sorted(set(models))
    count = max(1, round(_STOPPING_SHARE * len(names)))
    if len(names) <= 2:
        rows = np.random.default_rng(seed).permutation(len(models))
        cut = max(1, len(rows) // 5)
        return np.sort(rows[cut:]), np.sort(rows[:cut])
    apart = set(np.random.default_rng(seed).permutation(names)[:count].tolist())
    is_apart = np.array([model in apart for model in models])
    return np.flatnonzero(~is_apart), np.flatnonzero(is_apart)


def predict_targets(members: Sequence[Member], table: SampleTable) -> Floats:
    """The 12 targets of each sample: the timeline times the median of what the members correct."""
    import torch

    corrections = []
    for member in members:
        graphs, inputs = tensors_of(table, member.scaling)
        with torch.no_grad():
            output = member.network(graphs, inputs["others"], inputs["graph_of"])
        corrections.append(output.double().numpy())
    median: Floats = table.figures * np.exp(np.median(np.array(corrections), axis=0))
    return median


def folds_of(models: Sequence[str], count: int) -> Iterator[tuple[Rows, Rows]]:
    """Samples to train on and samples to predict, for each fold of whole models."""
    names = sorted(set(models))
    if len(names) < _FEWEST_MODELS:
        raise InvalidRequest(
            f"runs of {len(names)} models are too few to train an Inspector and to see how well it predicts "
            f"models that it has not seen; at least {_FEWEST_MODELS} are needed"
        )
    for fold in range(min(count, len(names))):
        left_out = set(names[fold::count])
        is_apart = np.array([model in left_out for model in models])
        yield np.flatnonzero(~is_apart), np.flatnonzero(is_apart)

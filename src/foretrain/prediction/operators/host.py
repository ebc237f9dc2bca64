"""Launch overhead of the host: Python, autograd and driver time per operator.

Eager PyTorch spends microseconds of CPU time on every operator, more on those that a library runs (cuDNN,
cuBLAS: descriptors, heuristics, workspaces). A compiled step enters each compiled graph once (guards,
wrapper, allocations) and launches fewer kernels. A captured graph is replayed by one call. The constants are
fitted to measured steps with many small kernels; machines differ by a factor of four. Research frameworks
take several times as long per launch as plain PyTorch: modules with hooks, autograd functions in Python,
process groups and random states looked up around every layer. That factor is fitted, too; it is that of the
hosts that a GPU was timed with, or of all.

**Launch-bound steps.** Kernels run in order on the device, each after the host has launched it:

    launched_i = launched_{i-1} + host_i            end_i = max(end_{i-1}, launched_i) + device_i

If kernels are shorter than launches, the device waits for the host. There are two cases, and every step is
one of them, here, in `step.compose` and in the sketches of `search`:

* A host that does not wait for the device runs ahead, so that a steady step takes max(Σ host, Σ device). Its
  device waits w = max(0, Σ host - Σ device) / Σ host for each second of launches (`waits_per_launch`).
* A host that waits, to read the loss, to time a step or for another stage of a pipeline, starts with an idle
  device: each pass takes at least its own launches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from foretrain.facts.calibrations import calibration_content, load_calibration
from foretrain.facts.devices import Device
from foretrain.prediction.operators.pricing import KINDS, PHASES, Flags, Floats, Listing
from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import MATRIX_KINDS, Kind

FILE = "host.json"
FRAMEWORK_FILE = "framework_host.json"


_IN_LIBRARIES = MATRIX_KINDS | {Kind.NORMALISATION}


@dataclass(frozen=True, slots=True)
class HostModel:
    """Seconds of host time.

    Eager: per operator by phase, and in addition per forward operator of a library. Compiled: per entry of a
    graph (one forward, one backward), per kernel, and in addition per operator of a library. Captured: per
    replay. `p10` and `p90` are quantiles of measured / predicted; `source` names the calibration.
    `framework_factor` is the time of a launch by a research framework over that by plain PyTorch.
    """

    forward_seconds: float
    library_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    compiled_call_seconds: float
    compiled_kernel_seconds: float
    compiled_library_seconds: float
    captured_seconds: float
    p10: float
    p90: float
    source: str
    framework_factor: float = 1.0

    def seconds(self, listing: Listing, compiled: bool, in_python: bool = False) -> Floats:
        """Host time of each operator; a view has none.

        What a checkpointed block recomputes is launched like a forward pass. `in_python`: layers are autograd
        functions written in Python, so that the interpreter also launches their backward passes.
        """
        if compiled:
            return self._compiled_seconds(listing)
        of_phase = {
            Phase.FORWARD: self.forward_seconds,
            Phase.BACKWARD: self.backward_seconds,
            Phase.OPTIMIZER: self.optimizer_seconds,
        }
        each = np.array([of_phase[phase] for phase in PHASES])[listing.phases]
        by_library = in_library(listing)
        as_forward = (listing.phases == PHASES.index(Phase.FORWARD)) | listing.is_recomputed
        if in_python:
            as_forward |= of_layers(listing) & (listing.phases == PHASES.index(Phase.BACKWARD))
        each = np.where(as_forward, self.forward_seconds + self.library_seconds * by_library, each)
        return np.where(listing.kernels > 0, each, 0.0)

    @property
    def exchange_seconds(self) -> float:
        """Host time of starting an exchange: a call of a library, as a forward operator of one."""
        return self.forward_seconds + self.library_seconds

    def _compiled_seconds(self, listing: Listing) -> Floats:
        """The optimizer's operators are launched as in an eager step, each over many tensors."""
        is_update = listing.phases == PHASES.index(Phase.OPTIMIZER)
        each = self.compiled_kernel_seconds + self.compiled_library_seconds * in_library(listing)
        each = np.where(is_update, self.optimizer_seconds, each)
        seconds: Floats = np.asarray(np.where(listing.kernels > 0, each, 0.0), float)
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            # Guards and wrapper run once for each compiled graph, before its first kernel.
            launched = np.flatnonzero((listing.phases == PHASES.index(phase)) & (listing.kernels > 0))
            if len(launched):
                seconds[launched[0]] += self.compiled_call_seconds
        return seconds


def of_layers(listing: Listing) -> Flags:
    """Whether each operator is that of a linear layer or a norm."""
    return np.isin(listing.kinds, [KINDS.index(kind) for kind in (Kind.LINEAR, Kind.NORMALISATION)])


def in_library(listing: Listing) -> Flags:
    """Whether a library runs each operator; also a batch norm that only scales and shifts."""
    by_kind = np.isin(listing.kinds, [KINDS.index(kind) for kind in _IN_LIBRARIES])
    return np.asarray(by_kind | (listing.per_op(listing.works.dim("library", 0)) > 0), bool)


def host_model(device: Device) -> HostModel:
    """The calibrated host; the same for all devices but for the frameworks' factor."""
    content = _framework()
    factor = content["devices"].get(device.id, content["factor"])
    return replace(_load_calibrated(), framework_factor=factor)


@cache
def _load_calibrated() -> HostModel:
    return load_calibration(HostModel, FILE)


@cache
def _framework() -> dict[str, Any]:
    return calibration_content(FRAMEWORK_FILE)


def waits_per_launch(launching: ArrayLike, busy: ArrayLike) -> Floats:
    """Seconds that a device waits for each second of launches, where the host runs ahead."""
    launched = np.asarray(launching, float)
    late = np.maximum(0.0, launched - np.asarray(busy, float))
    return np.asarray(late / np.where(launched > 0, launched, 1.0), float)


@dataclass(frozen=True, eq=False)
class Execution:
    """End of each operator of a step on the device, and the wait of the device before it."""

    ends: Floats
    waits: Floats

    @property
    def seconds(self) -> float:
        """Time between the ends of consecutive steps."""
        return float(self.ends[-1]) if len(self.ends) else 0.0


def ends_in_order(host: Floats, device: Floats) -> Floats:
    """End times of operators launched in order from time 0: the recursion above in closed form."""
    busy = np.cumsum(device)
    return busy + np.maximum.accumulate(np.cumsum(host) - (busy - device))


def synchronise_step(host: Floats, device: Floats) -> Execution:
    """A step of a loop that waits for every step: it starts with an idle device."""
    return _execution(ends_in_order(host, device), device)


def steady_step(host: Floats, device: Floats) -> Execution:
    """A steady step of a loop that never waits, timed from the end of the previous step.

    With a slower device the host is far ahead, and the device never waits. With a slower host the device
    catches up in every step, so the second of two steps equals all later ones.
    """
    if device.sum() >= host.sum():
        return Execution(np.cumsum(device), np.zeros(len(device)))
    ends = ends_in_order(np.tile(host, 2), np.tile(device, 2))
    return _execution(ends[len(host) :] - ends[len(host) - 1], device)


def _execution(ends: Floats, device: Floats) -> Execution:
    waits = np.diff(ends, prepend=0.0) - device
    return Execution(ends, np.maximum(waits, 0.0))

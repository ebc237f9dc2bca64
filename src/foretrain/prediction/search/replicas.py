"""Data-parallel steps on many groups of devices at once, in closed form.

A step has m micro-batches. In the last one, gradient bucket i is ready r_i after its start and takes c_i to
reduce in the group. One stream reduces the buckets in order, so

    step = (m - 1) body + max( body, max_i ( r_i + Σ_{j >= i} c_j ) ) + update

If launches take longer than all work of the device, the waits of its calls are proportional to their launch
times, as in `step.compose`; the results agree with its timelines. Sharded steps (ZeRO, FSDP) are sketched
from the same totals by how much their exchanges exceed computing; `evaluation.evaluate` is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foretrain.estimates import Estimate, Part, longest, sequence
from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware
from foretrain.prediction.collectives._base import Collective, CollectiveCost, Verb
from foretrain.prediction.collectives.catalogue import collective_cost, collective_seconds
from foretrain.prediction.collectives.network import Network
from foretrain.prediction.cost_models.priced_step import PricedStep, call_times, kind_parts, waiting_part
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.search.sketch import exposed_seconds
from foretrain.prediction.spread import traits_of, with_spread
from foretrain.prediction.step.compose import Contention
from foretrain.prediction.step.input_pipeline import InputPipeline
from foretrain.prediction.step.parallel import EXPOSED, Environment, contention_of
from foretrain.prediction.stragglers import with_slowest
from foretrain.prediction.strategies.catalogue import replication
from foretrain.prediction.strategies.gradients import (
    Bucket,
    bucketed,
    forward_end,
    gradients,
    optimizer_start,
    parameter_bytes,
)
from foretrain.prediction.strategies.layout import Layout
from foretrain.prediction.strategies.program import Axis, group_along
from foretrain.prediction.strategies.sharded import item_bytes
from foretrain.workloads.graph import Graph, Phase

Integers = NDArray[np.int64]
_FULL_BYTES = 4
"""Bytes of an FP32 parameter."""


@dataclass(frozen=True, eq=False)
class Reduction:
    """Seconds a group of devices takes to average each gradient bucket."""

    devices: int
    seconds: Floats
    cost: CollectiveCost

    @cached_property
    def after(self) -> Floats:
        """Seconds of each bucket and all later ones."""
        return np.cumsum(self.seconds[::-1])[::-1]


def gradient_buckets(graph: Graph) -> tuple[Bucket, ...]:
    """The buckets of a step's gradients; their sizes are the same at every batch."""
    return tuple(bucketed(gradients(graph)))


def reduction(buckets: Sequence[Bucket], hardware: Hardware, network: Network) -> Reduction:
    """The averaging of gradient buckets over all devices of some hardware."""
    group = group_along((Axis.DATA,), {Axis.DATA: hardware.devices}, hardware.devices_per_node)
    sizes = np.array([bucket.bytes for bucket in buckets], float)
    seconds = collective_seconds(Verb.ALL_REDUCE, sizes, group, network, hardware.device)
    largest = Collective(Verb.ALL_REDUCE, float(sizes.max(initial=0.0)), group)
    return Reduction(hardware.devices, seconds, collective_cost(largest, network, hardware.device))


@dataclass(frozen=True, eq=False)
class ReplicaStep:
    """One micro-batch and the update of a model on one device, from which all steps of its replicas follow.

    `ready` is the time from the start of a micro-batch to the last gradient of each bucket, on the device and
    on the host.
    """

    step: PricedStep
    device: Device
    forward: float
    backward: float
    update: float
    host: tuple[float, float]
    """Launch time of a micro-batch, and of the update."""
    host_forward: float
    """Launch time of the forward pass of a micro-batch."""
    ready: tuple[Floats, Floats]

    @cached_property
    def contention(self) -> Contention:
        """Of products and collectives for multiprocessors."""
        return contention_of(self.step, self.device)

    @property
    def body(self) -> float:
        """Device time of one micro-batch."""
        return self.forward + self.backward

    def seconds(self, reductions: Sequence[Reduction], micro_batches: Integers) -> Floats:
        """Step times of each group (rows) with each number of micro-batches (columns), without input."""
        wait = self._wait_per_launch(micro_batches)
        body, update = (
            busy + wait * launching
            for busy, launching in zip((self.body, self.update), self.host, strict=True)
        )
        after = np.array([each.after for each in reductions])
        ready = self.ready[0][:, None] + wait * self.ready[1][:, None]
        ends = np.maximum(body, (after[:, :, None] + ready).max(axis=1, initial=0.0))
        seconds = np.asarray((micro_batches - 1) * body + ends + update, float)
        return seconds + self._lost_seconds(reductions, ends - body, micro_batches)

    def _lost_seconds(self, reductions: Sequence[Reduction], exposed: Floats, rounds: Integers) -> Floats:
        """What reductions beside products cost on multiprocessors that both need, as `step.compose` has it.

        A device that waits for launches has that time to spare.
        """
        lost = np.zeros_like(exposed)
        if not self.contention.product_share:
            return lost
        spare = np.maximum(0.0, rounds * self.host[0] + self.host[1] - rounds * self.body - self.update)
        for row, each in enumerate(reductions):
            whole, count = float(each.seconds.sum()), len(each.seconds)
            for column, waited in enumerate(exposed[row].tolist()):
                lost[row, column] = self.contention.lost(whole - waited, whole / count if count else 0.0)
        return np.asarray(np.maximum(0.0, lost - spare), float)

    def forward_seconds(self, micro_batches: int) -> float:
        """Forward passes of a step, including their waits for launches."""
        wait = float(self._wait_per_launch(np.array([micro_batches]))[0])
        return micro_batches * (self.forward + wait * self.host_forward)

    def _wait_per_launch(self, micro_batches: Integers) -> Floats:
        """Seconds the device waits per second of launches, for each number of micro-batches."""
        launching = micro_batches * self.host[0] + self.host[1]
        busy = micro_batches * self.body + self.update
        safe = np.where(launching > 0, launching, 1.0)
        return np.asarray(np.maximum(0.0, launching - busy) / safe, float)

    def estimate(
        self, group: Reduction, micro_batches: int, loading: InputPipeline | None, jitter: float = 0.0
    ) -> Estimate:
        """The step with its parts, including the wait for the slowest device and for the input."""
        seconds = float(self.seconds([group], np.array([micro_batches]))[0, 0])
        computing = micro_batches * self.body + self.update
        waiting = max(0.0, micro_batches * self.host[0] + self.host[1] - computing)
        exposed = max(0.0, seconds - computing - waiting)
        parts = [*self._computing_parts(micro_batches)]
        if exposed > 0:
            cost = group.cost
            below = exposed * min(max(1 - cost.p10, 0.0), 1.0)
            parts.append(Part(EXPOSED, exposed, cost.source, below, exposed * max(cost.p90 - 1, 0.0)))
        if waiting > 0:
            parts.append(waiting_part(waiting, self.step.host))
        plain = Estimate("s", tuple(parts))
        share = waiting / plain.value if plain.value else 0.0
        traits = traits_of(self.step.graph, self.step, self.device, group.devices, share)
        total = with_slowest(with_spread(plain, self.step, traits, self.device), group.devices, jitter)
        if loading is None or not loading.estimate.parts:
            return total
        return longest(total, loading.estimate) if loading.overlaps else sequence((total, loading.estimate))

    def _computing_parts(self, micro_batches: int) -> Sequence[Part]:
        """Device time by kind and phase: the update once, everything else in every micro-batch."""
        once = [part for part in self._parts if part.name.startswith(Phase.OPTIMIZER)]
        each = [part for part in self._parts if not part.name.startswith(Phase.OPTIMIZER)]
        return [*(each if micro_batches == 1 else (part.scale(micro_batches) for part in each)), *once]

    @cached_property
    def _parts(self) -> tuple[Part, ...]:
        return tuple(kind_parts(self.step.priced))


def sent_bytes(graph: Graph) -> float:
    """Bytes of the parameters, or gradients, that one exchange of all shards moves."""
    return parameter_bytes(graph) * (item_bytes(graph, None) or _FULL_BYTES) / _FULL_BYTES


def sharded_seconds(step: ReplicaStep, layout: Layout, rounds: int, sent: float, at: Environment) -> float:
    """A step of `rounds` micro-batches with state sharded over the devices of a layout, from totals."""
    late = max(1.0, step.host[0] / step.body) if step.body else 1.0
    forward, backward = np.array([step.forward * late]), np.array([step.backward * late])
    after = exposed_seconds(layout, at, np.array([sent]), forward, backward, rounds)
    shards = replication(layout).shards(layout).optimizer
    return float(rounds * (forward + backward)[0] + after[0] + step.update / shards)


def replica_step(step: PricedStep, device: Device, buckets: Sequence[Bucket]) -> ReplicaStep:
    """The totals of a priced step that its replicas share."""
    times, graph = call_times(step), step.graph
    passing, updating = forward_end(graph), optimizer_start(graph)
    ready = np.array([bucket.ready + 1 for bucket in buckets], np.int64)
    busy, launched = (np.append(0.0, np.cumsum(column)) for column in (times.device, times.host))
    return ReplicaStep(
        step=step,
        device=device,
        forward=float(busy[passing]),
        backward=float(busy[updating] - busy[passing]),
        update=float(busy[-1] - busy[updating]),
        host=(float(launched[updating]), float(launched[-1] - launched[updating])),
        host_forward=float(launched[passing]),
        ready=(busy[ready], launched[ready]),
    )

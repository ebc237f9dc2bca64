"""A step of workers on CPUs: what they compute, and what gloo, FSDP, DataParallel or a server exchanges.

A CPU has no stream on which an exchange runs by itself. Its wire time overlaps computing, its processor time
does not. With n bytes of a message, p workers, a network of B bytes/s and constants of the machine:

    computing    C = Σ_g f_g s_g (1 + k_g (w - 1)) + h + c · calls       s_g: predicted seconds of a group g
    all-reduce   of DDP's buckets, during the backward pass:  wire 2(p-1)/p n e/B,  processor a + n b
    FSDP         gathers each unit twice and scatters its gradients, each awaited:  a + n ((p-1)/p e/B + b)
    DataParallel broadcasts the parameters and reduces the gradients, tensor by tensor, each awaited
    server       p pushes and p pulls share its link and its core:  a + p n (2 e/B + b)
    async        workers visit the server as they come: a closed queueing network (`parameter_server`)

w is the number of workers on one machine; f_g, k_g, h, c, e, and a, b of each strategy are constants. A
machine that was not calibrated has no constants, and other models predict it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np

from foretrain.facts.sheets import data_root
from foretrain.prediction.collectives._base import Verb
from foretrain.prediction.cost_models.priced_step import PricedStep, call_times
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.strategies.catalogue import replication
from foretrain.prediction.strategies.gradients import bucketed, forward_end, gradients, optimizer_start
from foretrain.prediction.strategies.layout import Layout, Variant
from foretrain.prediction.strategies.parameter_server import closed_network_rate
from foretrain.prediction.strategies.program import Program
from foretrain.workloads.graph import Graph, Phase, Role
from foretrain.workloads.ops import Kind

FILE = "cpu_workers.toml"
PRODUCTS, CONVOLUTIONS, STREAMS, UPDATE = "products", "convolutions", "streams", "update"
GROUPS = (PRODUCTS, CONVOLUTIONS, STREAMS, UPDATE)
_GROUP_OF = {
    **dict.fromkeys((Kind.LINEAR, Kind.MATMUL, Kind.ATTENTION, Kind.RNN), PRODUCTS),
    Kind.CONVOLUTION: CONVOLUTIONS,
    Kind.OPTIMIZER: UPDATE,
}
SINGLE, DDP, FSDP, DP, SERVER = "single", "ddp", "fsdp", "dp", "server"


@dataclass(frozen=True, slots=True)
class Message:
    """An exchange: its bytes, and the share of the backward pass after which it can start."""

    bytes: float
    ready: float = 1.0


@dataclass(frozen=True)
class WorkerStep:
    """A step of one of `workers` equal workers, as far as its time depends on it.

    `seconds` are predicted by the operator calibration, by group; `backward_seconds` is the part that is
    overlapped by exchanges. `network_bytes_per_second` is None without a limited network.
    """

    strategy: str
    workers: int
    workers_on_machine: int
    seconds: Mapping[str, float]
    backward_seconds: float
    calls: int
    messages: tuple[Message, ...] = ()
    tensors: int = 0
    network_bytes_per_second: float | None = None
    is_async: bool = False


@dataclass(frozen=True)
class WorkerConstants:
    """Constants of a machine and its libraries; all are at least 0.

    `*_factor`: measured over predicted seconds of a group. `*_contention`: further share of a group's time
    for each further worker on the machine. `wire_share`: wire time over that of the nominal rate.
    `*_message_seconds` and `*_byte_seconds`: processor time of an exchange.
    """

    products_factor: float
    convolutions_factor: float
    streams_factor: float
    update_factor: float
    products_contention: float
    convolutions_contention: float
    streams_contention: float
    update_contention: float
    step_seconds: float
    call_seconds: float
    wire_share: float
    ddp_message_seconds: float
    ddp_byte_seconds: float
    fsdp_message_seconds: float
    fsdp_byte_seconds: float
    dp_message_seconds: float
    dp_byte_seconds: float
    server_message_seconds: float
    server_byte_seconds: float


CONSTANTS = tuple(each.name for each in fields(WorkerConstants))


@dataclass(frozen=True)
class Prior:
    """Constants of an unknown machine, and the standard deviations of their logarithms."""

    constants: WorkerConstants
    spread: WorkerConstants


@cache
def prior() -> Prior:
    """What ships with the package."""
    raw = tomllib.loads((data_root() / "calibrations" / FILE).read_text(encoding="utf-8"))
    return Prior(WorkerConstants(**raw["constants"]), WorkerConstants(**raw["spread"]))


@dataclass(frozen=True, slots=True)
class WorkerTime:
    """Seconds of a step: groups of operators, overhead, and exchanges that the worker waits for."""

    computing: Mapping[str, float]
    overhead: float
    exchanging: float

    @property
    def seconds(self) -> float:
        """The step."""
        return sum(self.computing.values()) + self.overhead + self.exchanging


def worker_time(step: WorkerStep, constants: WorkerConstants) -> WorkerTime:
    """The time of a step by the equations of this module."""
    others = step.workers_on_machine - 1
    computing = {
        group: step.seconds.get(group, 0.0)
        * getattr(constants, f"{group}_factor")
        * (1 + getattr(constants, f"{group}_contention") * others)
        for group in GROUPS
    }
    overhead = constants.step_seconds + constants.call_seconds * step.calls
    if step.strategy == SINGLE or not step.messages:
        return WorkerTime(computing, overhead, 0.0)
    passes = sum(step.seconds.get(group, 0.0) for group in GROUPS if group != UPDATE)
    stretched = sum(computing[group] for group in GROUPS if group != UPDATE) / passes if passes else 1.0
    exchanging = _exchanging(step, constants, step.backward_seconds * stretched)
    if step.is_async:
        away = sum(computing.values()) + overhead
        exchanging = step.workers / closed_network_rate(step.workers, away, exchanging) - away
    return WorkerTime(computing, overhead, exchanging)


def _exchanging(step: WorkerStep, constants: WorkerConstants, backward: float) -> float:
    """Seconds of exchanges that a worker waits for; of an asynchronous server: of one worker's visit."""
    workers = step.workers
    rate = step.network_bytes_per_second
    wire = constants.wire_share / rate if rate else 0.0
    each: float = getattr(constants, f"{step.strategy}_message_seconds")
    per_byte: float = getattr(constants, f"{step.strategy}_byte_seconds")
    total = sum(message.bytes for message in step.messages)
    if step.strategy == DDP:
        ring = 2 * (workers - 1) / workers * wire
        busy = len(step.messages) * each + total * per_byte
        return busy + _exposed(step.messages, ring, backward)
    count = step.tensors if step.strategy == DP else len(step.messages)
    if step.strategy == SERVER:
        sharing = 1 if step.is_async else workers
        return each + total * sharing * (per_byte + 2 * wire)
    return count * each + total * ((workers - 1) / workers * wire + per_byte)


def _exposed(messages: Sequence[Message], wire: float, backward: float) -> float:
    """Wire time after the backward pass of messages that follow each other, each from when it is ready."""
    end = 0.0
    for message in messages:
        end = max(end, message.ready * backward) + message.bytes * wire
    return max(0.0, end - backward)


def worker_step(
    graph: Graph, priced: PricedStep, layout: Layout, on_machine: int, network_bytes_per_second: float | None
) -> WorkerStep | None:
    """What the time of a step depends on; None for layouts that these equations do not describe."""
    workers = layout.devices
    strategy = _strategy(layout)
    if strategy is None:
        return None
    start, update = forward_end(graph), optimizer_start(graph)
    seconds = _by_group(priced)
    if strategy == FSDP:
        seconds[UPDATE] = seconds.get(UPDATE, 0.0) / replication(layout).shards(layout).optimizer
    backward = call_times(priced).device[start:update]
    return WorkerStep(
        strategy=strategy,
        workers=workers,
        workers_on_machine=min(on_machine, workers),
        seconds=seconds,
        backward_seconds=float(backward.sum()),
        calls=sum(1 for op in priced.priced.ops if op.work.kernels and op.phase is not Phase.OPTIMIZER),
        messages=tuple(_messages(graph, layout, strategy, backward, start)),
        tensors=2 * sum(buffer.role is Role.PARAMETER for buffer in graph.buffers),
        network_bytes_per_second=network_bytes_per_second,
        is_async=layout.servers is not None and layout.servers.variant == Variant.ASYNC,
    )


def _strategy(layout: Layout) -> str | None:
    if layout.model_degree * layout.expert > 1:
        return None
    if layout.servers is not None:
        is_known = layout.servers.variant in (Variant.SYNC, Variant.ASYNC) and layout.servers.servers == 1
        return SERVER if is_known else None
    if layout.devices == 1:
        return SINGLE
    name = replication(layout).name
    if name in (DDP, DP):
        return str(name)
    return FSDP if layout.zero_stage == 3 and layout.shard == layout.devices else None


def _by_group(priced: PricedStep) -> dict[str, float]:
    seconds: dict[str, float] = dict.fromkeys(GROUPS, 0.0)
    for op, taken in zip(priced.priced.ops, priced.priced.seconds.tolist(), strict=True):
        group = UPDATE if op.phase is Phase.OPTIMIZER else _GROUP_OF.get(op.work.kind, STREAMS)
        seconds[group] += taken
    return seconds


def _messages(graph: Graph, layout: Layout, strategy: str, backward: Floats, start: int) -> list[Message]:
    """The exchanges of a step: buckets, units, or the whole model there and back."""
    if strategy == SINGLE:
        return []
    listed = gradients(graph)
    whole = float(sum(gradient.bytes for gradient in listed))
    if strategy == DDP:
        done = np.append(0.0, np.cumsum(backward))
        share = done / done[-1] if done[-1] > 0 else np.ones_like(done)
        return [
            Message(float(bucket.bytes), float(share[min(max(bucket.ready + 1 - start, 0), len(share) - 1)]))
            for bucket in bucketed(listed)
        ]
    if strategy == FSDP:
        program = replication(layout).replicate(Program(graph), layout)
        verbs = (Verb.ALL_GATHER, Verb.REDUCE_SCATTER)
        return [Message(float(each.bytes)) for each in program.exchanges if each.verb in verbs]
    return [Message(whole), Message(whole)] if strategy == DP else [Message(whole)]

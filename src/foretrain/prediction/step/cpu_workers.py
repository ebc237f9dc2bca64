"""A step of workers on CPUs: what they compute, and what gloo, FSDP, DataParallel or a server exchanges.

A CPU has no stream on which an exchange runs by itself: its wire time overlaps computing, its processor time
does not. With n bytes of a message, p workers, a network of B bytes/s and constants of the machine:

    computing    C = d (Σ_g f_g s_g (1 + k_g (min(w, cores) - 1)) + h + c · calls)
    all-reduce   of DDP's buckets, each during the rest of the backward pass:  a + n (2(p-1)/p e/B + b)
    FSDP         gathers each unit twice and scatters its gradients:  a + n (q (p-1)/p e/B + b) with q = 1
                 and 2; the wire time of the backward pass overlaps a share v of its computing
    DataParallel broadcasts the parameters and reduces the gradients tensor by tensor, awaiting each
    server       p pushes, then p pulls, share its link and its core:  a + p n (2 e/B + b); workers with a
                 core of their own push while others still compute
    async        a closed queueing network of workers that compute, the server's link in each direction, and
                 its core; large messages disturb those of the other direction: a share n / (n + n_0) of
                 both directions is one station

s_g are the predicted seconds of a group of operators, w the workers on one machine, d = ceil(w / cores) those
that share a core (on average w / cores), where each exchange also waits for a time slice. f_g, k_g, h, c, e,
v, n_0, and a and b of each strategy are constants, so is the time of a byte of messages that are mapped anew.
A machine that was not calibrated has none, and other models predict it.

Reference for the queueing network: M. Reiser, S. Lavenberg, J. ACM 27 (2), 1980 (mean value analysis).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from foretrain.facts.calibrations import calibration_content
from foretrain.persisted import restore
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.cost_models import PricedStep, call_times
from foretrain.prediction.operators.cpu import MMAP_THRESHOLD_BYTES
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.strategies.program import (
    Program,
    fill_buckets,
    forward_end,
    gradients,
    optimizer_start,
)
from foretrain.prediction.strategies.strategy import (
    DATA_PARALLEL,
    Layout,
    Variant,
    is_single_process,
    replication,
)
from foretrain.workloads.graph import ITEM_BYTES, Graph, Phase, Role
from foretrain.workloads.ops import Kind, Work

FILE = "cpu_workers.toml"
PRODUCTS, CONVOLUTIONS, KERNELS, POINTWISE = "products", "convolutions", "kernels", "pointwise"
STREAMS, UPDATE = "streams", "update"
GROUPS = (PRODUCTS, CONVOLUTIONS, KERNELS, POINTWISE, STREAMS, UPDATE)
"""Groups of operators with errors of their own: products, convolutions that move more pixels than weights,
those that move more weights, those of single pixels or in groups, other operators, the update."""
_GROUP_OF = {
    **dict.fromkeys((Kind.LINEAR, Kind.MATMUL, Kind.ATTENTION, Kind.RNN), PRODUCTS),
    Kind.OPTIMIZER: UPDATE,
}
SINGLE, DDP, FSDP, DP, SERVER = "single", "ddp", "fsdp", "dp", "server"


@dataclass(frozen=True, slots=True)
class Message:
    """An exchange: its bytes, the share of the backward pass after which it can start, and how often its
    bytes pass the wire, against a gather of them.
    """

    bytes: float
    ready: float = 1.0
    passes: float = 1.0


@dataclass(frozen=True)
class WorkerStep:
    """A step of one of `workers` equal workers, as far as its time depends on it.

    `seconds` are predicted by the operator calibration, by group; `backward_seconds` is the part that is
    overlapped by exchanges. `network_bytes_per_second` is None without a limited network.
    """

    strategy: str
    workers: int
    workers_on_machine: int
    cores: int
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
    for each further core in use. `slice_seconds`: wait of an exchange for a core that workers share.
    `wire_share`: wire time over that of the nominal rate. `*_message_seconds` and `*_byte_seconds`: processor
    time of an exchange. `fresh_byte_seconds`: of a byte of a message that is mapped anew. `duplex_bytes`:
    size of messages that half disturb those of the other direction. `buffer_bytes`: what a network takes at
    once, at most at its rate since the message before.
    """

    products_factor: float
    convolutions_factor: float
    kernels_factor: float
    pointwise_factor: float
    streams_factor: float
    update_factor: float
    products_contention: float
    convolutions_contention: float
    kernels_contention: float
    pointwise_contention: float
    streams_contention: float
    update_contention: float
    step_seconds: float
    call_seconds: float
    slice_seconds: float
    wire_share: float
    fsdp_overlap: float
    duplex_bytes: float
    buffer_bytes: float
    fresh_byte_seconds: float
    ddp_message_seconds: float
    ddp_byte_seconds: float
    fsdp_message_seconds: float
    fsdp_byte_seconds: float
    dp_message_seconds: float
    dp_byte_seconds: float
    server_message_seconds: float
    server_byte_seconds: float


CONSTANTS = tuple(WorkerConstants.__dataclass_fields__)


@dataclass(frozen=True)
class WorkerPrior:
    """Constants of an unknown machine, and the standard deviations of their logarithms.

    `model_spread` and `run_spread` are those of log(measured / predicted) before any run: of models, and of
    the runs of one model.
    """

    constants: WorkerConstants
    spread: WorkerConstants
    model_spread: float
    run_spread: float


@cache
def prior() -> WorkerPrior:
    """What ships with the package."""
    raw = calibration_content(FILE)
    return restore(WorkerPrior, {**raw, **raw["residual"]}, FILE)


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
    """The time of a step by the equations of this module; between two updates of an asynchronous server."""
    others = min(step.workers_on_machine, step.cores) - 1
    shared = _workers_per_core(step)
    computing = {
        group: step.seconds.get(group, 0.0)
        * getattr(constants, f"{group}_factor")
        * (1 + getattr(constants, f"{group}_contention") * others)
        * shared
        for group in GROUPS
    }
    overhead = (constants.step_seconds + constants.call_seconds * step.calls) * shared
    if not step.messages:
        return WorkerTime(computing, overhead, 0.0)
    if step.is_async:
        return _asynchronous(step, constants, computing, overhead)
    passes = sum(step.seconds.get(group, 0.0) for group in GROUPS if group != UPDATE)
    stretched = sum(computing[group] for group in GROUPS if group != UPDATE) / passes if passes else 1.0
    backward = step.backward_seconds * stretched
    return WorkerTime(computing, overhead, _exchanging(step, constants, backward, sum(computing.values())))


def _workers_per_core(step: WorkerStep) -> int:
    return -(-step.workers_on_machine // step.cores)


def _wire(step: WorkerStep, constants: WorkerConstants) -> float:
    """Wire seconds of a byte; 0 on a network that nothing limits."""
    return constants.wire_share / step.network_bytes_per_second if step.network_bytes_per_second else 0.0


def _idle_places(step: WorkerStep) -> int:
    """Workers that have their core to themselves while others share one, and are ready earlier."""
    return -step.workers_on_machine % step.cores if _workers_per_core(step) > 1 else 0


def _exchanging(step: WorkerStep, constants: WorkerConstants, backward: float, computing: float) -> float:
    """Seconds of exchanges that a worker waits for."""
    workers, wire = step.workers, _wire(step, constants)
    each: float = getattr(constants, f"{step.strategy}_message_seconds")
    each += constants.slice_seconds * (_workers_per_core(step) - 1)
    per_byte: float = getattr(constants, f"{step.strategy}_byte_seconds")
    total = sum(message.bytes for message in step.messages)
    large = sum(message.bytes for message in step.messages if message.bytes > MMAP_THRESHOLD_BYTES)
    mapping = large * constants.fresh_byte_seconds
    if step.strategy == DDP:
        ring = 2 * (workers - 1) / workers * wire
        return len(step.messages) * each + mapping + _time_exposed(step.messages, ring + per_byte, backward)
    if step.strategy == SERVER:
        early = _idle_places(step) * min(total * wire, computing * (1 - 1 / _workers_per_core(step)))
        return each + total * workers * (per_byte + 2 * wire) - early
    if step.strategy == FSDP:
        return _price_sharded(step, constants, each, backward)
    return step.tensors * each + total * ((workers - 1) / workers * wire + per_byte)


def _price_sharded(step: WorkerStep, constants: WorkerConstants, each: float, backward: float) -> float:
    """Exchanges of FSDP: those of the forward pass are awaited, those of the backward pass overlap a share of
    its computing and of the processor time of each other.
    """
    wire = _wire(step, constants) * (step.workers - 1) / step.workers
    busy = on_wire = buffered = 0.0
    for message in step.messages:
        mapped = constants.fresh_byte_seconds if message.bytes > MMAP_THRESHOLD_BYTES else 0.0
        busy += each + message.bytes * (constants.fsdp_byte_seconds + mapped)
        sent = message.bytes * message.passes
        on_wire += sent * wire
        buffered += min(sent, constants.buffer_bytes) * wire
    forward_wire = on_wire * (1 - _FSDP_BACKWARD_SHARE)
    backward_wire = on_wire - forward_wire
    waited = max(0.0, forward_wire - buffered * (1 - _FSDP_BACKWARD_SHARE))
    hidden = constants.fsdp_overlap * (backward + busy * _FSDP_BACKWARD_MESSAGES)
    return busy + waited + max(0.0, backward_wire - hidden)


_FSDP_BACKWARD_SHARE, _FSDP_BACKWARD_MESSAGES = 3 / 4, 2 / 3
"""Of the bytes and the messages of FSDP in a step, those of the backward pass: a gather in each pass, and a
scatter of gradients, which gloo carries out as an all-reduce of twice the bytes."""


def _time_exposed(messages: Sequence[Message], seconds_per_byte: float, backward: float) -> float:
    """Time after the backward pass of messages that follow each other, each from when it is ready."""
    end = 0.0
    for message in messages:
        end = max(end, message.ready * backward) + message.bytes * seconds_per_byte
    return max(0.0, end - backward)


def _asynchronous(
    step: WorkerStep, constants: WorkerConstants, computing: Mapping[str, float], overhead: float
) -> WorkerTime:
    """An average update: the server's core updates, its link carries messages in both directions."""
    size = sum(message.bytes for message in step.messages)
    one_way = size * _wire(step, constants)
    together = size / (size + constants.duplex_bytes) if size else 0.0
    updating = computing[UPDATE] / _workers_per_core(step)
    serving = constants.server_message_seconds + size * constants.server_byte_seconds + updating
    crowding = max(1.0, step.workers_on_machine / step.cores) / _workers_per_core(step)
    away = (sum(computing.values()) - computing[UPDATE] + overhead) * crowding
    stations = (one_way * (1 - together), one_way * (1 - together), 2 * one_way * together, serving)
    seconds = 1 / _closed_network_rate(step.workers, away, stations)
    share = crowding / step.workers
    computed = {group: taken * share for group, taken in computing.items() if group != UPDATE}
    used = sum(computed.values()) + overhead * share
    return WorkerTime(computed, overhead * share, max(0.0, seconds - used))


def _closed_network_rate(workers: int, away_seconds: float, service_seconds: Sequence[float]) -> float:
    """Visits per second of workers to stations they queue at: R_k = s_k (1 + Q_k), X = m / (Z + Σ R_k)."""
    rate, queues = 0.0, [0.0] * len(service_seconds)
    for present in range(1, workers + 1):
        responses = [service * (1 + queue) for service, queue in zip(service_seconds, queues, strict=True)]
        rate = present / (away_seconds + sum(responses))
        queues = [rate * response for response in responses]
    return rate


def worker_step(
    graph: Graph,
    priced: PricedStep,
    layout: Layout,
    on_machine: int,
    cores: int,
    network_bytes_per_second: float | None,
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
        cores=cores,
        seconds=seconds,
        backward_seconds=float(backward.sum()),
        calls=sum(1 for op in priced.priced.ops if op.work.kernels and op.phase is not Phase.OPTIMIZER),
        messages=tuple(_messages(graph, layout, strategy, backward, start)),
        tensors=2 * sum(buffer.role is Role.PARAMETER for buffer in graph.buffers),
        network_bytes_per_second=network_bytes_per_second,
        is_async=layout.servers is not None and layout.servers.is_asynchronous,
    )


def _strategy(layout: Layout) -> str | None:
    if layout.model_degree * layout.expert > 1:
        return None
    if layout.servers is not None:
        is_known = layout.servers.variant in (Variant.SYNC, Variant.ASYNC) and layout.servers.servers == 1
        return SERVER if is_known else None
    if layout.devices == 1:
        return SINGLE
    if is_single_process(layout):
        return DP
    if layout.replication == DATA_PARALLEL:
        return DDP
    return FSDP if layout.zero_stage == 3 and layout.shard == layout.devices else None


def _by_group(priced: PricedStep) -> dict[str, float]:
    seconds: dict[str, float] = dict.fromkeys(GROUPS, 0.0)
    for op, taken in zip(priced.priced.ops, priced.priced.seconds.tolist(), strict=True):
        if taken > 0:
            seconds[UPDATE if op.phase is Phase.OPTIMIZER else _group(op.work)] += taken
    return seconds


def _group(work: Work) -> str:
    """The group of an operator."""
    if work.kind is not Kind.CONVOLUTION:
        return _GROUP_OF.get(work.kind, STREAMS)
    dims = work.dims
    kernel = math.prod(dims.get(f"kernel_{axis}", 1) for axis in ("depth", "height", "width"))
    if kernel == 1 or dims.get("groups", 1) > 1:
        return POINTWISE
    weights = dims["out_channels"] * dims["in_channels"] * kernel * ITEM_BYTES.get(work.dtype, 4)
    return KERNELS if 2 * weights > work.read_bytes + work.write_bytes else CONVOLUTIONS


_FSDP_PASSES = {Verb.ALL_GATHER: 1.0, Verb.REDUCE_SCATTER: 2.0}


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
            for bucket in fill_buckets(listed)
        ]
    if strategy == FSDP:
        program = replication(layout).replicate(Program(graph), layout)
        return [
            Message(float(each.bytes), passes=_FSDP_PASSES[each.verb])
            for each in program.exchanges
            if each.verb in _FSDP_PASSES
        ]
    return [Message(whole), Message(whole)] if strategy == DP else [Message(whole)]

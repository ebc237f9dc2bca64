"""Parameter servers: time per update, throughput and staleness, by the number of gradients servers wait for.

Strategies are written `ps-sync`, `ps-ksync=3` or `ps-async,servers=2`. There are n workers with independent
times X per gradient. A message (gradients or parameters) takes c seconds on an idle server link, and m c
seconds if m messages share it (S / (B/n) in Sanghvi's model, see `synchronous_seconds`).

| variant | the server updates with | waiting for the workers | staleness |
|---|---|---|---|
| sync | all n gradients | E[X_(n:n)] | 0 |
| ksync | the first K; the others restart | E[X_(K:n)] | 0 |
| kbatchsync | the first K; workers continue with the same parameters | E[K-th of n pooled renewals] | 0 |
| async | each gradient | E[X] / n | n - 1 |
| kasync | the first K workers; the others continue | simulated; exponential: E[X_(K:n)] | (n - K) / K |
| kbatchasync | any K; workers continue with the newest parameters | K E[X] / n | (n - 1) / K |

Waiting times: S. Dutta et al., "Slow and Stale Gradients Can Win the Race", AISTATS 2018. Staleness is the
mean number of updates between reading the parameters and using the gradient. It holds for any distribution:
each update ages the n - K (kasync) or n - 1 gradients in progress by one, and uses K.

Exchanges. In sync, ksync and kbatchsync the pushes and the n pulls follow the waiting: an upper bound, since
early pushes may overlap late workers. In kasync the K workers exchange while the others compute. In async and
kbatchasync workers share the link as they arrive: a closed network of computing (any distribution) and one
processor-sharing server, solved exactly by mean value analysis (F. Baskett et al., J. ACM 22 (2), 1975;
M. Reiser, S. Lavenberg, J. ACM 27 (2), 1980).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from foretrain.errors import InvalidRequest
from foretrain.prediction.stragglers import (
    Distribution,
    WorkerTimes,
    expected_completion,
    expected_order_statistic,
    simulate_first_k,
)
from foretrain.prediction.strategies.strategy import Layout, PsUpdate, ServerPlan, Strategy, Variant

FORM = re.compile(r"ps-(sync|async|ksync|kbatchsync|kasync|kbatchasync)(?:=(\d+))?(?:,servers=(\d+))?")


def server_plan(strategy: str, workers: int) -> ServerPlan:
    """The servers of a strategy text, for a number of workers."""
    match = FORM.fullmatch(strategy)
    if not match:
        raise InvalidRequest(
            f"strategy {strategy!r}: write ps-sync, ps-async, ps-ksync=K, ps-kbatchsync=K, ps-kasync=K or "
            "ps-kbatchasync=K, each with ,servers=S for several servers"
        )
    variant, number, servers = match.group(1), match.group(2), int(match.group(3) or 1)
    takes_number = variant.startswith("k")
    if takes_number != (number is not None):
        need = f"needs a number: ps-{variant}=K" if takes_number else "takes no number"
        raise InvalidRequest(f"strategy {strategy!r}: ps-{variant} {need}")
    k = int(number) if number else (workers if variant == "sync" else 1)
    if not 1 <= k <= workers:
        raise InvalidRequest(f"strategy {strategy}: K must be between 1 and {workers} workers, got {k}")
    if servers < 1:
        raise InvalidRequest(f"strategy {strategy}: servers must be at least 1, got {servers}")
    return ServerPlan(variant, k, servers)


@dataclass(frozen=True)
class Server:
    """Costs of the servers: message on an idle link, aggregation of an update, overhead per gradient."""

    message_seconds: float = 0.0
    aggregation_seconds: float = 0.0
    overhead_seconds: float = 0.0


FREE = Server()
"""A server without costs."""


def server_on_link(
    gradient_bytes: float,
    bytes_per_second: float,
    servers: int = 1,
    aggregation_seconds: float = 0.0,
    overhead_seconds: float = 0.0,
) -> Server:
    """Servers with a link of `bytes_per_second` each, over which the parameters are divided evenly."""
    if servers < 1 or bytes_per_second <= 0:
        raise InvalidRequest(
            f"servers and bytes_per_second must be above 0, got {servers} and {bytes_per_second}"
        )
    return Server(gradient_bytes / bytes_per_second / servers, aggregation_seconds, overhead_seconds)


def synchronous_seconds(
    batch: int,
    forward_seconds_per_sample: Sequence[float],
    backward_seconds: Sequence[float],
    gradient_bytes: float,
    bytes_per_second: float,
    workers_per_server: int,
    aggregation_seconds: float = 0.0,
    overhead_seconds: float = 0.0,
) -> float:
    """Synchronous step: T = max over workers (b/g t_fwd + t_bwd + 2 S/(B/n) + t_agg + o).

    One entry per worker (g of them) in the two sequences; each server serves n workers over a link of B.
    Reference: K. Sanghvi, "Prediction & Cost Analysis of Distributed Deep Learning Jobs in a Multi-GPU
    Environment", section V.
    """
    workers = len(forward_seconds_per_sample)
    if not 1 <= workers_per_server <= workers or len(backward_seconds) != workers:
        raise InvalidRequest(
            f"{workers_per_server} workers per server, {workers} forward and {len(backward_seconds)} backward"
            " times: give both times for each worker, and at most all workers per server"
        )
    computing = max(
        batch / workers * forward + backward
        for forward, backward in zip(forward_seconds_per_sample, backward_seconds, strict=True)
    )
    exchange = 2 * gradient_bytes / (bytes_per_second / workers_per_server)
    return computing + exchange + aggregation_seconds + overhead_seconds


class _Pace(NamedTuple):
    """Average time of an update, without and with exchanges."""

    waiting: float
    whole: float
    standard_error: float = 0.0


def ps_update(
    variant: Variant, workers: int, k: int, worker_times: WorkerTimes, server: Server = FREE
) -> PsUpdate:
    """An average update of `workers` equal workers; `k` applies to the four variants with a K."""
    if workers < 1:
        raise InvalidRequest(f"workers must be at least 1, got {workers}")
    k = {Variant.SYNC: workers, Variant.ASYNC: 1}.get(variant, k)
    distinct = variant in {Variant.K_SYNC, Variant.K_ASYNC}
    if k < 1 or (distinct and k > workers):
        raise InvalidRequest(
            f"{variant}: K must be at least 1"
            + (f" and at most {workers}, the number of workers" if distinct else "")
            + f", got {k}"
        )
    pace = _PACES[variant](workers, k, worker_times, server)
    return PsUpdate(
        variant=variant,
        workers=workers,
        k=k,
        waiting_seconds=pace.waiting,
        exchange_seconds=pace.whole - pace.waiting,
        gradients_per_update=k,
        expected_staleness=expected_staleness(variant, workers, k),
        useful_share=k * worker_times.mean / (workers * pace.whole),
        standard_error=pace.standard_error,
    )


def expected_staleness(variant: Variant, workers: int, k: int) -> float:
    """Mean number of updates between reading the parameters and using the gradient."""
    if variant is Variant.ASYNC:
        return workers - 1.0
    if variant is Variant.K_ASYNC:
        return (workers - k) / k
    if variant is Variant.K_BATCH_ASYNC:
        return (workers - 1) / k
    return 0.0


def _after_waiting(waiting: float, workers: int, k: int, server: Server) -> _Pace:
    """K pushes, an aggregation, n pulls."""
    exchange = (k + workers) * server.message_seconds + server.aggregation_seconds + server.overhead_seconds
    return _Pace(waiting, waiting + exchange)


def _first_k(workers: int, k: int, times: WorkerTimes, server: Server) -> _Pace:
    return _after_waiting(expected_order_statistic(times, k, workers), workers, k, server)


def _first_k_batches(workers: int, k: int, times: WorkerTimes, server: Server) -> _Pace:
    return _after_waiting(expected_completion(times, k, workers), workers, k, server)


def _any_k_batches(workers: int, k: int, times: WorkerTimes, server: Server) -> _Pace:
    service = 2 * server.message_seconds + server.aggregation_seconds / k
    rate = closed_network_rate(workers, times.mean + server.overhead_seconds, service)
    return _Pace(k * times.mean / workers, k / rate)


def _first_k_continuing(workers: int, k: int, times: WorkerTimes, server: Server) -> _Pace:
    if k == workers:
        return _first_k(workers, k, times, server)
    if k == 1:
        return _any_k_batches(workers, k, times, server)
    busy = 2 * k * server.message_seconds + server.aggregation_seconds
    memoryless = times.distribution is Distribution.SHIFTED_EXPONENTIAL and times.shift == 0
    if memoryless:
        waiting, error = expected_order_statistic(times, k, workers), 0.0
    else:
        waiting, error = simulate_first_k(times, k, workers)
    if busy == 0 and server.overhead_seconds == 0:
        return _Pace(waiting, waiting, error)
    return _Pace(waiting, *simulate_first_k(times, k, workers, busy, server.overhead_seconds))


_PACES: Mapping[Variant, Callable[[int, int, WorkerTimes, Server], _Pace]] = {
    Variant.SYNC: _first_k,
    Variant.K_SYNC: _first_k,
    Variant.K_BATCH_SYNC: _first_k_batches,
    Variant.ASYNC: _any_k_batches,
    Variant.K_BATCH_ASYNC: _any_k_batches,
    Variant.K_ASYNC: _first_k_continuing,
}


def closed_network_rate(workers: int, away_seconds: float, service_seconds: float) -> float:
    """Visits per second to a shared server by workers that compute for `away_seconds` between visits.

    Mean value analysis, for m = 1 ... n: R = s (1 + Q), rate = m / (Z + R), Q = rate · R.
    """
    rate, queue = 0.0, 0.0
    for present in range(1, workers + 1):
        response = service_seconds * (1 + queue)
        rate = present / (away_seconds + response)
        queue = rate * response
    assert math.isfinite(rate)
    return rate


class ParameterServer(Strategy):
    """`ps-sync`, `ps-async`, `ps-ksync=K` ...: workers and servers. No launcher starts servers."""

    name = "parameter-server"
    words = ("ps-sync", "ps-async")
    form = "ps-sync, ps-async, ps-ksync=K, ps-kbatchsync=K, ps-kasync=K, ps-kbatchasync=K"
    launchers = frozenset()
    order = 90

    def claims(self, text: str) -> bool:
        """All texts that start with `ps-`."""
        return text.startswith("ps-")

    def parse(self, text: str, devices: int, devices_per_node: int) -> Layout:
        """Every device is a worker."""
        del devices_per_node
        return Layout(text, data=devices, replication=self.name, servers=server_plan(text, devices))

    def update(self, layout: Layout, worker: WorkerTimes, message: float, updating: float) -> PsUpdate | None:
        """An average update, by the number of gradients the servers wait for."""
        plan = layout.servers
        assert plan is not None, "parsed by this strategy"
        server = Server(message, updating / plan.servers)
        return ps_update(Variant(plan.variant), layout.data, plan.k, worker, server)

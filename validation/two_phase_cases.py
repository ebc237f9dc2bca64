"""What two-phase plans are tried on: the offers of today, the jobs they could run, and brute force.

The steps of a network are predicted on each offer, and billed as its cloud does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.errors import ForetrainError
from foretrain.facts.devices import device
from foretrain.facts.hardware import Hardware, nodes
from foretrain.facts.offers import Offer, search
from foretrain.facts.options import OfferQuery
from foretrain.facts.providers import providers
from foretrain.facts.running import CHECKPOINT_FIXED, CHECKPOINT_RATE, STARTUP, default
from foretrain.jobs.bill import billed_seconds_each
from foretrain.jobs.epochs import progress_step_seconds
from foretrain.planning.two_phases.phases import HandOver, PhasedJob, Runner, worth_pairing
from foretrain.prediction.corrections.apply import resolve_cost_model
from foretrain.prediction.operators.pricing import DEFAULT
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.prediction.scenario import StepConfiguration, evaluate, step_context
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.units import GIGA, HOUR
from foretrain.workloads.graph import state_bytes
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import graph_at, workload_of

MICRO_BATCH = 128
"""Samples a device takes at once."""


@dataclass(frozen=True)
class Network:
    """What an entry trained, as the zoo has it, and the batch of the steps its epochs are counted in."""

    model: str
    samples: int
    global_batch: int
    image_size: int | None = None

    @property
    def steps_per_epoch(self) -> int:
        """Of the reference batch."""
        return math.ceil(self.samples / self.global_batch)


@dataclass(frozen=True)
class PricedOffer:
    """An offer and what a step takes on it: at the network's batch, and at a batch of its own."""

    offer: Offer
    step_seconds: float
    own_batch: int
    own_step_seconds: float


@dataclass(frozen=True)
class Market:
    """The offers of all clouds or of one, priced for a network, and the bytes to carry over."""

    name: str
    network: Network
    offers: tuple[PricedOffer, ...]
    state_bytes: float


def priced_offers(network: Network) -> tuple[tuple[PricedOffer, ...], float]:
    """Every current offer that can train the network by data parallelism; the bytes of its state."""
    request = WorkloadRequest(
        network.model,
        batch=MICRO_BATCH,
        image_size=network.image_size,
        precision="fp16",
        optimizer="momentum",
        channels_last=True,
    )
    workload = workload_of(request)
    model = resolve_cost_model(DEFAULT, workload)

    @cache
    def seconds(machine: Hardware) -> tuple[float, float] | None:
        context = step_context(workload, machine, Parallelism(), model, InputOptions())
        layout = layout_of("ddp", machine.devices, machine.devices)
        each = network.global_batch // machine.devices
        configurations = (
            StepConfiguration(layout, each, max(1, each // MICRO_BATCH)),
            StepConfiguration(layout, MICRO_BATCH),
        )
        try:
            same, own = (evaluate(context, configuration) for configuration in configurations)
        except ForetrainError:  # an operation has no price on that device, or its links are not known
            return None
        return (same.seconds, own.seconds) if same.memory.fits and own.memory.fits else None

    priced = []
    for offer in search(OfferQuery()):
        if offer.device is None or network.global_batch % offer.count:
            continue
        known = nodes().find(named(offer))
        both = seconds(Hardware(offer.device, device(offer.device), offer.count, 1, known))
        if both is not None:
            priced.append(PricedOffer(offer, both[0], MICRO_BATCH * offer.count, both[1]))
    return tuple(priced), state_bytes(graph_at(workload, MICRO_BATCH))


def named(offer: Offer) -> str:
    """As people write it: provider:instance."""
    return f"{offer.provider}:{offer.instance}"


def at_one_batch(market: Market, epochs: float) -> PhasedJob:
    """The job with the same batch everywhere: one stage."""
    steps = math.ceil(epochs * market.network.steps_per_epoch)
    runners = [_runner(priced, (priced.step_seconds,)) for priced in market.offers]
    return _job(market, (steps,), runners)


def at_own_batches(market: Market, stages: Sequence[tuple[float, float]]) -> PhasedJob:
    """The job in stages of (epochs, critical batch), each offer with the batch that fills its devices."""
    per_epoch, reference = market.network.steps_per_epoch, market.network.global_batch
    critical = [batch for _, batch in stages]
    runners = [
        _runner(priced, progress_step_seconds(priced.own_step_seconds, priced.own_batch, reference, critical))
        for priced in market.offers
    ]
    return _job(market, tuple(max(1, round(epochs * per_epoch)) for epochs, _ in stages), runners)


def _runner(priced: PricedOffer, step_seconds: tuple[float, ...]) -> Runner:
    offer = priced.offer
    terms = providers()[offer.provider].billing_terms(offer.instance)
    return Runner(named(offer), step_seconds, offer.usd_per_hour, terms, default(STARTUP).quantiles.p50)


def _job(market: Market, stage_steps: tuple[int, ...], runners: Sequence[Runner]) -> PhasedJob:
    """Offers that another of the same cloud makes needless are left out: leaving it costs the same."""
    by_cloud: dict[str, list[int]] = defaultdict(list)
    for index, priced in enumerate(market.offers):
        by_cloud[priced.offer.provider].append(index)
    kept = sorted(
        mine[place] for mine in by_cloud.values() for place in worth_pairing([runners[i] for i in mine])
    )
    owners = np.array([market.offers[index].offer.provider for index in kept])
    chosen = tuple(runners[index] for index in kept)
    moved = default(CHECKPOINT_FIXED).quantiles.p50
    moved += market.state_bytes / default(CHECKPOINT_RATE).quantiles.p50
    known = [runner.terms.egress_usd_per_gb for runner in chosen]
    dearest = max((price for price in known if price is not None), default=0.0)
    leaving = np.array([dearest if price is None else price for price in known])
    usd = np.where(owners[:, None] != owners[None, :], leaving[:, None], 0.0) * market.state_bytes / GIGA
    return PhasedJob(stage_steps, chosen, HandOver(moved, moved, 0.0, usd))


def brute_force(job: PhasedJob, deadlines: Sequence[float], at_step: int | None = None) -> tuple[float, ...]:
    """The least money of all ordered pairs of offers and every switch step within each deadline.

    With `at_step` only that step is tried. Infinite where no two phases are in time.
    """
    steps = np.arange(1.0, job.steps) if at_step is None else np.array([float(at_step)])
    before = [_first_phase(job, index, steps) for index in range(len(job.runners))]
    after = [_second_phase(job, index, steps) for index in range(len(job.runners))]
    moving = job.hand_over.table("usd", len(job.runners))
    best = [math.inf] * len(deadlines)
    for i, (first_seconds, first_usd) in enumerate(before):
        for j, (second_seconds, second_usd) in enumerate(after):
            if i == j:
                continue
            seconds = first_seconds + second_seconds
            usd = first_usd + second_usd + moving[i, j]
            for place, deadline in enumerate(deadlines):
                within = usd[seconds <= deadline]
                if len(within):
                    best[place] = min(best[place], float(within.min()))
    return tuple(best)


def _first_phase(job: PhasedJob, index: int, steps: Floats) -> tuple[Floats, Floats]:
    runner, write = job.runners[index], float(np.asarray(job.hand_over.write_seconds))
    return _billed(runner, runner.start_seconds + _work(job, index, steps) + write)


def _second_phase(job: PhasedJob, index: int, steps: Floats) -> tuple[Floats, Floats]:
    runner, moving = job.runners[index], job.hand_over
    besides = float(np.asarray(moving.transfer_seconds)) + float(np.asarray(moving.restart_seconds))
    left = _work(job, index, np.array([float(job.steps)])) - _work(job, index, steps)
    return _billed(runner, runner.start_seconds + left + besides)


def _work(job: PhasedJob, index: int, steps: Floats) -> Floats:
    """Seconds of the first `steps` steps."""
    bounds = np.concatenate(([0], np.cumsum(job.stage_steps)))
    marks = np.concatenate(([0.0], np.cumsum(np.array(job.stage_steps) * job.runners[index].step_seconds)))
    return np.asarray(np.interp(steps, bounds, marks), dtype=float)


def _billed(runner: Runner, seconds: Floats) -> tuple[Floats, Floats]:
    terms = runner.terms
    billed = billed_seconds_each(
        seconds, np.array(terms.granularity_seconds), np.array(terms.minimum_seconds)
    )
    return seconds, billed / HOUR * runner.usd_per_hour

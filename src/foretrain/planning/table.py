"""The rows of a plan: machines with the way taken on them and what the whole job takes there.

Machines of one shape take the same time, so ways and jobs are found once for a shape; only the bill and the
emissions differ from offer to offer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from foretrain.errors import InvalidRequest, MissingData
from foretrain.facts.billing import BillingTerms
from foretrain.facts.hardware import Hardware
from foretrain.facts.providers import providers
from foretrain.jobs.batch_limits import BatchLimits
from foretrain.jobs.bill import Price, price_of
from foretrain.jobs.configurations import PLAIN, Ways
from foretrain.jobs.device_memory import capacity_bytes
from foretrain.jobs.energy import energy_of
from foretrain.jobs.job import (
    Job,
    JobOptions,
    StepSummary,
    evaluated_each_epoch,
    job_in_steps,
    notes_of,
)
from foretrain.jobs.length import Length
from foretrain.jobs.smallest_step import small_step
from foretrain.planning.frontier import Plan
from foretrain.planning.machines import Machines, Reasons, Shape
from foretrain.planning.model_parallel import Divided, divided
from foretrain.planning.verification import Chosen
from foretrain.prediction.cost_models.step_models import CostModel
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.units import format_bytes
from foretrain.workloads.graph import state_bytes
from foretrain.workloads.workload import Workload


class Rows:
    """Plans of one job, filled from machines."""

    def __init__(
        self,
        workload: Workload,
        model: CostModel,
        length: Length,
        limits: BatchLimits,
        running: JobOptions,
        samples: int | None,
        with_layouts: bool = False,
    ) -> None:
        self._searched = workload if with_layouts else None
        self.plans: list[Plan] = []
        self.needed = ""
        self._ways = Ways(workload, model, length, limits)
        self._leaner: Ways | None = None
        self._can_recompute = not (workload.options.checkpoint_activations or workload.options.forward_only)
        self._least_lack = math.inf
        self._length = length
        self._limits = limits
        self._running = running
        self._samples = samples
        self._machines: list[Machines] = []
        self._offered: Collection[Hardware] = ()
        self._strategies: Sequence[str] = ()
        self._chosen: dict[Shape, Chosen | Divided] = {}
        self._jobs: dict[Shape, Job] = {}
        self._terms: dict[tuple[str, str], BillingTerms] = {}
        self.state_bytes = state_bytes(small_step(workload))

    @property
    def compared(self) -> int:
        """Combinations of machines, strategy and batch that were looked at."""
        return self._ways.compared + (self._leaner.compared if self._leaner else 0)

    def fill(
        self,
        found: Sequence[Machines],
        strategies: Sequence[str],
        samples_from: InputOptions,
        left_out: Reasons,
        progress: Callable[[str], None],
    ) -> None:
        """One plan for all machines that can run the job."""
        shapes = {each.shape: each.hardware for each in found}
        self._offered, self._strategies = shapes.values(), strategies
        self._ways.prepare(self._offered, samples_from)
        unknown: dict[Shape, str] = {}
        for number, (shape, hardware) in enumerate(shapes.items(), start=1):
            progress(f"pricing {hardware.device.id} ({number} of {len(shapes)})")
            try:
                chosen = self._choose(hardware)
            except MissingData as error:  # a precision this device does not have, for one
                unknown[shape] = str(error)
                continue
            if chosen is not None:
                self._chosen[shape] = chosen
        for each in found:
            if each.shape in self._chosen:
                self._add(each, left_out)
            else:
                why = unknown.get(each.shape) or self._why_not(each.hardware, strategies)
                left_out.add(why, each.hardware.name)

    def divide(self, found: Sequence[Machines], left_out: Reasons, progress: Callable[[str], None]) -> None:
        """The same for a model that must be divided between devices, by searching among its layouts."""
        ways, batch = self._ways, self._limits.global_batch
        assert batch is not None, "layouts are searched at one global batch"
        spot = self._running.spot
        self._chosen |= divided(
            ways.workload, ways.model, self._length, batch, found, ways.input, spot, left_out, progress
        )
        for each in found:
            if each.shape in self._chosen:
                self._add(each, left_out)

    def _add(self, each: Machines, left_out: Reasons) -> None:
        plan = self._plan(each, left_out)
        if plan is not None:
            self._machines.append(each)
            self.plans.append(plan)

    def settle(self, wanted: Collection[int], left_out: Reasons) -> bool:
        """Make sure of some plans; False if that changed anything."""
        unsure = {self._machines[index].shape for index in wanted}
        unsure = {shape for shape in unsure if not self._chosen[shape].is_settled}
        if not unsure:
            return True
        for shape in unsure:
            self._jobs.pop(shape, None)
            settled = self._settled(self._chosen.pop(shape))
            if settled is not None:
                self._chosen[shape] = settled
        kept = list(zip(self._machines, self.plans, strict=True))
        self._machines, self.plans = [], []
        for each, plan in kept:
            if each.shape not in self._chosen:
                left_out.add(self._why_not(each.hardware), each.hardware.name)
                continue
            if each.shape in unsure:
                self._add(each, left_out)
            else:
                self._machines.append(each)
                self.plans.append(plan)
        return False

    def job_of(self, index: int) -> Job:
        """The job of a plan with its parts, bill and energy."""
        each, plan = self._machines[index], self.plans[index]
        job, offer, spot = self._job_of_shape(each.shape), each.offer, self._running.spot
        price = price_of(each.hardware, spot, None, offer.region or None)
        energy = energy_of(each.hardware, job.seconds, offer.provider, offer.region, stated=False)
        notes = (*self._chosen[each.shape].steps.notes, *notes_of((each.hardware,), price, energy, spot))
        return replace(
            job, usd=plan.usd, kwh=plan.kwh, co2_kg=plan.co2_kg, price=price, energy=energy, notes=notes
        )

    def terms_of(self, plan: Plan) -> BillingTerms:
        """How the time of a plan's machines is counted."""
        return self._terms[plan.offer.provider, plan.offer.instance]

    def _choose(self, hardware: Hardware) -> Chosen | None:
        """The quickest ways; where nothing fits, with activations recomputed."""
        candidates = self._ways.candidates(hardware, self._strategies)
        if candidates:
            return Chosen(self._ways, hardware, candidates, self._searched)
        return self._choose_leaner(hardware)

    def _choose_leaner(self, hardware: Hardware) -> Chosen | None:
        leaner = self._recomputing()
        candidates = [] if leaner is None else leaner.candidates(hardware, self._strategies)
        return Chosen(leaner, hardware, candidates, self._searched) if leaner and candidates else None

    def _settled(self, chosen: Chosen | Divided) -> Chosen | Divided | None:
        """What was chosen, sure to hold; else the same with activations recomputed, if that does."""
        if chosen.settle():
            return chosen
        if isinstance(chosen, Divided) or chosen.ways is self._leaner:
            return None
        leaner = self._choose_leaner(chosen.hardware)
        return leaner if leaner is not None and leaner.settle() else None

    def _recomputing(self) -> Ways | None:
        """The same workload with its activations recomputed, where it has blocks to do so; tried once."""
        options = self._ways.workload.options
        if self._can_recompute and self._leaner is None:
            lean = replace(self._ways.workload, options=replace(options, checkpoint_activations=True))
            leaner = self._ways.of(lean)
            try:
                leaner.prepare(self._offered, self._ways.input)
            except InvalidRequest:
                self._can_recompute = False
            else:
                self._leaner = leaner
        return self._leaner

    def _why_not(self, hardware: Hardware, strategies: Sequence[str] = (PLAIN,)) -> str:
        if not self._ways.shares_out(hardware):
            return "the batch does not share out over so many GPUs"
        if hardware.devices == 1 and PLAIN not in strategies:
            return "one GPU has nothing to shard"
        leanest = (self._leaner or self._ways).leanest_bytes(hardware)
        lack = leanest / capacity_bytes(hardware.device)
        if lack < self._least_lack:
            self._least_lack = lack
            self.needed = f"{format_bytes(leanest)} on each GPU of {hardware.name}"
        return "the model does not fit into the memory of these GPUs"

    def _plan(self, each: Machines, left_out: Reasons) -> Plan | None:
        """A plan, unless interruptions never let the job end there."""
        hardware, offer, way = each.hardware, each.offer, self._chosen[each.shape].way
        try:
            job = self._job_of_shape(each.shape)
        except InvalidRequest as error:
            left_out.add(str(error), hardware.name)
            return None
        price = Price(
            offer.price(self._running.spot),
            hardware.nodes,
            self._billed(offer.provider, offer.instance),
            self._running.spot,
            "",
        )
        energy = energy_of(hardware, job.seconds, offer.provider, offer.region, stated=False)
        return Plan(
            hardware=hardware,
            offer=offer,
            spot=self._running.spot,
            way=way,
            seconds=job.seconds,
            usd=price.bill(job.seconds),
            kwh=None if energy is None else energy.kwh.p50,
            co2_kg=None if energy is None or energy.co2_kg is None else energy.co2_kg.p50,
            in_time=1.0,
            in_budget=1.0,
            both=1.0,
        )

    def _billed(self, provider: str, instance: str) -> BillingTerms:
        key = provider, instance
        if key not in self._terms:
            self._terms[key] = providers()[provider].billing_terms(instance)
        return self._terms[key]

    def _job_of_shape(self, shape: Shape) -> Job:
        if shape not in self._jobs:
            bare = replace(self._chosen[shape].hardware, offer=None)
            self._jobs[shape] = self._job(shape, bare)
        return self._jobs[shape]

    def _job(self, shape: Shape, hardware: Hardware) -> Job:
        chosen = self._chosen[shape]
        way = chosen.way
        step = StepSummary(way.step_seconds, chosen.forward_seconds, way.global_batch, self.state_bytes)
        running = evaluated_each_epoch(self._running, self._samples, way.global_batch)
        return job_in_steps(step, chosen.steps, hardware, running)

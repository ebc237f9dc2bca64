"""From sketches to plans that hold: what stands on the front is looked at in full before it is told.

Plain data parallelism is exact in closed form, so only its memory near a device's limit is simulated again.
Sharded ways are sketches; they are predicted in full, and where one does not fit after all, the next takes
its place. On request all other layouts are searched in their stead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from foretrain.errors import ForetrainError
from foretrain.facts.hardware import Hardware
from foretrain.jobs.configurations import PLAIN, Candidate, Ways
from foretrain.jobs.device_memory import capacity_bytes
from foretrain.jobs.job import Steps
from foretrain.planning.frontier import Way
from foretrain.planning.model_parallel import best_layout, way_of
from foretrain.prediction.memory.estimate import estimate_memory
from foretrain.prediction.stragglers import default_jitter
from foretrain.prediction.strategies.catalogue import layout_of
from foretrain.prediction.strategies.memory_options import MemoryOptions
from foretrain.workloads.workload import Workload

if TYPE_CHECKING:
    from foretrain.prediction.evaluation import Evaluation

_NEAR = 0.9
"""Share of a device's memory from which it is simulated for that device."""


class Chosen:
    """The way taken on some machines, and those that come after it; settled once it is known to hold.

    `whole` is the workload to search all layouts of, where that is asked for.
    """

    def __init__(
        self, ways: Ways, hardware: Hardware, candidates: list[Candidate], whole: Workload | None
    ) -> None:
        self.ways = ways
        self.hardware = hardware
        self.is_settled = False
        self._left = candidates
        self._whole = whole
        self._way = self._sketched(candidates[0])

    @property
    def way(self) -> Way:
        """How the job is run."""
        return self._way

    @property
    def steps(self) -> Steps:
        """The steps of the whole job, run so."""
        return self.ways.steps_at(self._way.global_batch)

    @property
    def forward_seconds(self) -> float:
        """Forward passes of a step."""
        step = self.ways.replica(self._left[0].micro_batch, self.hardware.device)
        return step.forward_seconds(self._left[0].micro_batches)

    def settle(self) -> bool:
        """Make sure that the way holds, or take the next that does; False if none does."""
        while not self.is_settled:
            found = self._in_full(self._left[0])
            if found is not None:
                self._way, self.is_settled = found, True
            elif len(self._left) == 1:
                return False
            else:
                self._left = self._left[1:]
        return True

    def _sketched(self, candidate: Candidate) -> Way:
        ways, hardware = self.ways, self.hardware
        step = ways.replica(candidate.micro_batch, hardware.device)
        group, rounds = ways.reduction(hardware), candidate.micro_batches
        loading = ways.loading(candidate.micro_batch, hardware).times(rounds)
        told = step.estimate(group, rounds, loading, default_jitter(hardware.device)).quantiles
        if candidate.strategy != PLAIN:
            told = told.scale(candidate.seconds / told.p50)
        return Way(
            strategy=candidate.strategy,
            batch=candidate.micro_batch * rounds,
            micro_batches=rounds,
            global_batch=candidate.global_batch,
            checkpoint_activations=ways.workload.options.checkpoint_activations,
            steps=round(ways.steps_at(candidate.global_batch).quantiles.p50),
            step_seconds=told,
            memory_bytes=candidate.memory_bytes,
            knowledge=step.step.knowledge,
        )

    def _in_full(self, candidate: Candidate) -> Way | None:
        """The way as it holds; None if it does not fit, or cannot be spread so."""
        sketched = self._sketched(candidate)
        if candidate.strategy == PLAIN:
            return self._with_memory(sketched, candidate)
        steps = self.ways.steps_at(candidate.global_batch)
        if self._whole is not None:
            quickest = best_layout(
                self._whole, self.ways.model, self.hardware, candidate.global_batch, self.ways.input
            )
            if quickest is not None:
                return way_of(quickest, steps)
        evaluation = self._evaluated(candidate)
        if evaluation is None or not evaluation.memory.fits:
            return None
        return way_of(evaluation, steps)

    def _with_memory(self, sketched: Way, candidate: Candidate) -> Way | None:
        device, devices = self.hardware.device, self.hardware.devices
        accumulates = candidate.micro_batches > 1
        if candidate.memory_bytes < _NEAR * capacity_bytes(device):
            told = self.ways.memory.simulated(candidate.micro_batch, devices, accumulates, device)
            return replace(sketched, memory_bytes=told)
        options = MemoryOptions(data_parallel=devices, keep_gradients=accumulates)
        tight = estimate_memory(self.ways.graph(candidate.micro_batch), device, options)
        return replace(sketched, memory_bytes=tight.bytes) if tight.fits else None

    def _evaluated(self, candidate: Candidate) -> Evaluation | None:
        from foretrain.prediction.evaluation import evaluate
        from foretrain.prediction.scenario import Parallelism, StepConfiguration, step_context

        hardware = self.hardware
        parallelism = Parallelism(links=hardware.links, network=hardware.network)
        context = step_context(self.ways.workload, hardware, parallelism, self.ways.model, self.ways.input)
        layout = layout_of(candidate.strategy, hardware.devices, hardware.devices_per_node)
        configuration = StepConfiguration(
            layout, candidate.micro_batch * candidate.micro_batches, candidate.micro_batches
        )
        try:
            return evaluate(context, configuration)
        except ForetrainError:
            return None

"""A prediction of a training step together with what follows from it: an epoch, and the whole job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from foretrain.answers import Infeasible
from foretrain.encoding import encode
from foretrain.jobs.options import JobOptions, LengthOptions
from foretrain.prediction.answer import Prediction
from foretrain.prediction.predict import predict_as
from foretrain.prediction.scenario import Scenario
from foretrain.units import MEGA, format_duration, format_money

if TYPE_CHECKING:  # a step alone needs neither epochs nor jobs
    from foretrain.jobs.epochs import Epoch
    from foretrain.jobs.job import Job


@dataclass(frozen=True)
class JobPrediction(Prediction):
    """The prediction of a step; of an epoch where its samples are known, of a job where its length is."""

    epoch: Epoch | None = None
    job: Job | None = None

    @property
    def usd_per_million_tokens(self) -> float | None:
        """The cost of a million tokens of the job; None without tokens, a job or a price."""
        rate = self.throughput.tokens_per_second
        if rate is None or self.job is None or self.job.usd is None:
            return None
        tokens = self.job.steps * rate * self.step.seconds.p50
        return self.job.usd.p50 / tokens * MEGA

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data; `epoch`, `job` and the price of tokens where there is one."""
        more = {
            "epoch": self.epoch,
            "job": self.job,
            "usd_per_million_tokens": self.usd_per_million_tokens,
        }
        return {
            **super().to_dict(),
            **{name: encode(value) for name, value in more.items() if value is not None},
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """That of the step, and time and cost of the job."""
        if self.job is None:
            return super().summary()
        seconds, usd = self.job.seconds, self.job.usd
        cost = "" if usd is None else f", {format_money(usd.p50)}"
        return (
            *super().summary(),
            ("job", f"{self.job.steps:,} steps, {format_duration(seconds.p50)}{cost}"),
        )


def predict_job(
    scenario: Scenario, length: LengthOptions, options: JobOptions | None = None
) -> JobPrediction | Infeasible:
    """Predict a step, and from it an epoch of `length.samples` and a job of that length, where known."""
    known = None
    if length.is_known:
        from foretrain.jobs.length import length_of

        # before the step: a length that is refused should not cost a trace
        known = length_of(length, scenario.workload)
    prediction = predict_as(JobPrediction, scenario)
    if isinstance(prediction, Infeasible):
        return prediction
    if length.samples is None and known is None:
        return prediction
    from foretrain.jobs.epochs import epoch_of
    from foretrain.jobs.job import evaluate_each_epoch, job_of
    from foretrain.jobs.length import with_staleness

    epoch = None if length.samples is None else epoch_of(prediction, length.samples)
    if known is None:
        return replace(prediction, epoch=epoch)
    steps = with_staleness(
        known.steps_at(prediction.update_batch),
        prediction.parallelism.staleness or 0.0,
        length.is_to_a_target,
    )
    options = evaluate_each_epoch(options or JobOptions(), length.samples, prediction.update_batch)
    return replace(prediction, epoch=epoch, job=job_of(prediction, steps, options))

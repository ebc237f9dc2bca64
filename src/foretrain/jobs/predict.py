"""A prediction of a training step together with what follows from it: an epoch, and the whole job."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from foretrain.answers import Infeasible
from foretrain.encoding import encode
from foretrain.jobs.epochs import Epoch, epoch_of
from foretrain.jobs.job import Job, evaluated_each_epoch, job_of
from foretrain.jobs.length import steps_of, with_staleness
from foretrain.jobs.options import JobOptions, LengthOptions
from foretrain.prediction.answer import Prediction
from foretrain.prediction.predict import predict
from foretrain.prediction.scenario import Scenario, refuse_unread_links
from foretrain.units import format_duration, format_money


@dataclass(frozen=True)
class JobPrediction(Prediction):
    """The prediction of a step; of an epoch where its samples are known, of a job where its length is."""

    epoch: Epoch | None = None
    job: Job | None = None

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data; `epoch` and `job` where there is one."""
        more = {"epoch": self.epoch, "job": self.job}
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
    if scenario.cluster.is_homogeneous:
        refuse_unread_links(scenario.cluster.groups[0], scenario.parallelism)
    prediction = predict(scenario)
    if isinstance(prediction, Infeasible):
        return prediction
    epoch = None if length.samples is None else epoch_of(prediction, length.samples)
    return JobPrediction(
        **{each.name: getattr(prediction, each.name) for each in fields(prediction)},
        epoch=epoch,
        job=_job(prediction, length, options or JobOptions()) if length.is_known else None,
    )


def _job(prediction: Prediction, length: LengthOptions, options: JobOptions) -> Job:
    batch = prediction.update_batch
    steps = steps_of(length, batch)
    assert steps is not None, "the length is known"
    staleness = prediction.parallelism.staleness or 0.0
    return job_of(
        prediction,
        with_staleness(steps, staleness, length.is_to_a_target),
        evaluated_each_epoch(options, length.samples, batch),
    )

"""The steps of a job: as given, by epochs of a data set, or until a training log meets its target."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretrain.convergence.forecast import Convergence
from foretrain.convergence.from_log import LogRequest, converge
from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.prediction.job import Steps


@dataclass(frozen=True)
class StepsRequest:
    """What is known of a job's length; exactly one of `steps`, `epochs` and `log` may say it."""

    steps: int | None = None
    epochs: float | None = None
    samples: int | None = None
    log: LogRequest | None = None

    def __post_init__(self) -> None:
        said = [name for name in ("steps", "epochs", "log") if getattr(self, name) is not None]
        if len(said) > 1:
            raise InvalidRequest(
                "say the length of the job once: --steps, or --epochs, or --target with --log"
            )
        if self.epochs is not None and not (math.isfinite(self.epochs) and self.epochs > 0):
            raise InvalidRequest(f"{self.epochs:g} epochs: give a finite number above 0")
        if self.epochs is not None and self.samples is None:
            raise InvalidRequest("--epochs wants --samples, the samples of an epoch; or give --steps")
        if self.samples is not None and self.samples < 1:
            raise InvalidRequest(f"an epoch of {self.samples} samples: give at least 1")

    @property
    def is_known(self) -> bool:
        """Whether anything says how long the job is."""
        return self.steps is not None or self.epochs is not None or self.log is not None


def steps_of(request: StepsRequest, global_batch: int) -> Steps | None:
    """The steps of a job whose steps have so many samples; None if nothing says them."""
    if request.steps is not None:
        return _exactly(request.steps, "steps as given")
    if request.epochs is not None and request.samples is not None:
        per_epoch = math.ceil(request.samples / global_batch)
        return _exactly(math.ceil(request.epochs * per_epoch), "epochs as given")
    if request.log is not None:
        return steps_to_target(converge(request.log), request.samples, global_batch)
    return None


def steps_to_target(answer: Convergence, samples: int | None, global_batch: int) -> Steps:
    """The steps until a target is met, in all; an epoch of a log in epochs is as long as this data set.

    The log's steps are taken to be of the same batch size as the job's. Where p90 is never, the job ends at
    the end looked at.
    """
    name = f"{answer.target.metric}={answer.target.value:g}"
    if not (answer.reaches and math.isfinite(answer.steps.p50)):
        raise InvalidRequest(f"the job has no known end: {name} is not met. {answer.verdict}")
    scale = 1.0
    if answer.unit == "epoch":
        if samples is None:
            raise InvalidRequest("the log counts epochs: give --samples, the samples of an epoch")
        scale = math.ceil(samples / global_batch)
    most = max(answer.steps.p50, min(answer.steps.p90, answer.final_step))
    steps = Quantiles(min(answer.steps.p10, answer.steps.p50), answer.steps.p50, most).scale(scale)
    return Steps(steps, f"steps until {name}")


def _exactly(steps: int, source: str) -> Steps:
    return Steps(Quantiles(steps, steps, steps), source)

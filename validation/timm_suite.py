"""timm in mixed precision: training steps with the family left out, forward passes on a GPU never fitted.

Every family is predicted by a fit without any of its models, training or forward; the RTX 4090 by the shipped
fit on the RTX 3090. Methods: foretrain, its factors of kernel classes without the trees of whole steps, its
single-kernel models without either, and the roofline.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from calibration.steps.class_times import ClassTimes

from calibration.steps import mixed_precision as fit
from foretrain.estimates import Quantiles
from foretrain.prediction.operators.pricing import Flags, Floats
from validation.report import Case, Metrics, SuiteReport, metrics

GRAPHS = Path(__file__).parents[1] / "build" / "timm_graphs"
FORETRAIN, FACTORS, KERNELS, ROOFLINE = "foretrain", "factors alone", "single kernels alone", "roofline"
METHODS = (FORETRAIN, FACTORS, KERNELS, ROOFLINE)
_NOTES = (
    "Target: training mean <= 9 %, median <= 5 %; RTX 4090 <= 15 %. Reference: a sketch by non-negative "
    "least squares and boosting 12 % and 6.4 %.",
    "Models the installed timm has renamed are found; those it has dropped are left out. Forward passes: at "
    "most five of every family, by a hash of the name; there are 2,871 of them.",
    "The classes of kernels, and where they are split, were chosen with the errors on these rows in view.",
    "In channels-last layout PyTorch 1.12 ran grouped convolutions of 32 and more channels a group "
    "(regnet, nfnet, resnext 32x32d) several times slower than in plain layout; and TResNet cannot be "
    "traced as it ran, because timm has since replaced its in-place batch norm.",
    "EfficientFormer V2 mixes attention heads by convolutions of 8 channels over 196 x 196 scores, ConvMixer "
    "has depthwise kernels of 9 x 9: both run kernels of their own, far slower than their classes.",
    "The interval of a family is made of the residuals of the other families; that of the RTX 4090 is what "
    "`predict` gives for a GPU it never saw, made of these same residuals.",
)


def run(data: Path) -> SuiteReport:
    """Leave each family out; then predict the other GPU."""
    times = fit.priced(data, GRAPHS)
    predicted = _predicted(times)
    is_forward = np.array([step.wanted.forward_only for step in times.steps])
    last = np.array([step.wanted.channels_last for step in times.steps])
    here = times.device_ids == fit.FITTED
    cases = _cases(times, predicted)
    groups: dict[str, Flags] = {
        "training, RTX 3090, family left out": here & ~is_forward,
        "training, channels first": here & ~is_forward & ~last,
        "training, channels last": here & ~is_forward & last,
        "forward, RTX 3090, family left out": here & is_forward,
        "forward, RTX 4090, GPU left out": ~here,
    }
    by_set = {name: _metrics([case for case, keep in zip(cases, chosen, strict=True) if keep])
             for name, chosen in groups.items()}  # fmt: skip
    return SuiteReport("timm", tuple(cases), by_set, notes=_NOTES)


def _predicted(times: ClassTimes) -> dict[str, Floats]:
    here = times.device_ids == fit.FITTED
    everything = fit.learn(times.where(here))
    predicted = {
        FORETRAIN: fit.family_unseen(times),
        FACTORS: fit.family_unseen(times, with_trees=False),
        KERNELS: np.maximum(times.seconds.sum(axis=1), times.host_seconds),
        ROOFLINE: times.least.sum(axis=1),
    }
    elsewhere = times.where(~here)
    predicted[FORETRAIN][~here] = everything.predict(elsewhere)
    predicted[FACTORS][~here] = everything.predict(elsewhere, with_trees=False)
    return predicted


def _cases(times: ClassTimes, by_method: dict[str, Floats]) -> list[Case]:
    ratio = times.measured / by_method[FORETRAIN]
    here = times.device_ids == fit.FITTED
    cases = []
    for row, step in enumerate(times.steps):
        others = (here if here[row] else ~here) & (times.families != step.family)
        p10, p90 = np.quantile(ratio[others], [0.1, 0.9])
        guess = float(by_method[FORETRAIN][row])
        layout = "channels-last" if step.wanted.channels_last else "channels-first"
        mode = "forward" if step.wanted.forward_only else "training"
        cases.append(
            Case(
                name=f"{step.wanted.model} at {step.wanted.image_size}, batch {step.batch}, {layout}",
                group=f"{mode} {step.device_id}",
                measured=step.seconds,
                predicted={method: float(by_method[method][row]) for method in METHODS},
                interval=Quantiles(guess * p10, guess, guess * p90),
            )
        )
    return cases


def _metrics(cases: Sequence[Case]) -> dict[str, Metrics]:
    return {method: metrics(cases, method, with_interval=method == FORETRAIN) for method in METHODS}

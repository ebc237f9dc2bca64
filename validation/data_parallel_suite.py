"""PyTorch's DataParallel on 2 to 4 GPUs of four machines: 32 networks at 12 samples a GPU, no optimizer.

Predicted from the step on one GPU and the extra time of the data-parallel step: parameters copied there and
gradients back, modules replicated for every device, forward passes launched in turn. The machine is left
out: what a parameter costs the interpreter is learned on the three others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from calibration.steps.data_parallel import Replicated, fit, replicated

from foretrain.prediction.operators.pricing import Floats
from validation.report import Case, Metrics, SuiteReport, metrics
from validation.splitting import by_group, intervals, leave_out

HERE, ALONE = "foretrain", "foretrain, one GPU not timed"
COPIES, PERFECT = "copies and launches alone", "perfect scaling"
_NOTES = (
    "What replicating costs is 0.083 to 0.104 ms for each parameter and device on all four machines, "
    "whatever the network: a hundred layers make DataParallel slower than one GPU, whatever the links.",
    "The Titan Xp machine takes twice to three times as long with four GPUs as with three, for all "
    "networks: its fourth GPU sits behind something the sheet does not know. Without these rows: 'three "
    "GPUs at most'.",
)


def run(data: Path) -> SuiteReport:
    """Predict every step on several GPUs, its machine left out."""
    steps = replicated(data)
    beyond = np.array([step.predicted_seconds - step.single_predicted_seconds for step in steps])
    single = np.array([step.single_seconds for step in steps])
    replicating = _left_out(steps)
    predicted = {
        HERE: single + beyond + replicating,
        ALONE: np.array([step.predicted_seconds for step in steps]) + replicating,
        COPIES: single + beyond,
        PERFECT: single,
    }
    cases = _cases(steps, predicted)
    by_set = {"all": _metrics(cases)}
    for count in (2, 3, 4):
        by_set[f"{count} GPUs"] = _metrics(
            [case for case, step in zip(cases, steps, strict=True) if step.step.devices == count]
        )
    for host, group in by_group(cases).items():
        by_set[host] = _metrics(group)
    by_set["three GPUs at most"] = _metrics(
        [case for case, step in zip(cases, steps, strict=True) if step.step.devices < 4]
    )
    return SuiteReport("data_parallel", tuple(cases), by_set, notes=_NOTES)


def _left_out(steps: Sequence[Replicated]) -> Floats:
    """What replicating takes, by what a parameter costs on other machines."""
    hosts = [step.step.host for step in steps]
    counts = np.array([step.step.devices * step.parameters for step in steps], float)

    def predict(others: np.ndarray, _: str) -> Floats:
        seconds: Floats = counts * fit([step for step, kept in zip(steps, others, strict=True) if kept])
        return seconds

    return leave_out(hosts, len(steps), predict)


def _cases(steps: Sequence[Replicated], predicted: dict[str, Floats]) -> list[Case]:
    hosts = [step.step.host for step in steps]
    measured = np.array([step.step.seconds for step in steps])
    bounds = intervals(hosts, measured, predicted[HERE])
    return [
        Case(
            f"{step.step.model} on {step.step.devices} x {step.step.device_id} of {step.step.host}",
            step.step.host,
            step.step.seconds,
            {name: float(values[index]) for name, values in predicted.items()},
            bounds[index],
        )
        for index, step in enumerate(steps)
    ]


def _metrics(cases: Sequence[Case]) -> dict[str, Metrics]:
    return {name: metrics(cases, name, name == HERE) for name in (HERE, ALONE, COPIES, PERFECT)}

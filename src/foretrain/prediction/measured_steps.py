"""Training steps that a user timed, as `foretrain calibrate TIMINGS.csv` keeps them in the user's folder."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foretrain.errors import InvalidData
from foretrain.facts.user_data import user_data_dir, write_atomically

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Configuration:
    """What was trained, on what, how; None is the model's or foretrain's default."""

    model: str
    device: str
    batch: int
    precision: str | None = None
    seq_len: int | None = None
    image_size: int | None = None
    optimizer: str | None = None
    attention: str | None = None
    channels_last: bool = False
    compile: bool = False


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """The measured time of a step, and what foretrain predicted of it without having seen it."""

    configuration: Configuration
    step_seconds: float
    predicted_seconds: float

    @property
    def log_ratio(self) -> float:
        """log(measured / predicted)."""
        return math.log(self.step_seconds / self.predicted_seconds)


def measurements_file() -> Path:
    """Where they are kept."""
    return user_data_dir() / "measurements.json"


def measured_steps() -> tuple[MeasuredStep, ...]:
    """All that was measured so far; nothing if nothing was."""
    file = measurements_file()
    try:
        raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if raw["format"] != FORMAT:
            raise ValueError("another version of foretrain wrote it")
        return tuple(_step(item) for item in raw["steps"])
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError) as error:
        problem = f"cannot be read ({error}); mend or remove it, then calibrate again"
        raise InvalidData(str(file), problem) from error


def _step(item: dict[str, Any]) -> MeasuredStep:
    found = MeasuredStep(
        Configuration(**item["configuration"]), item["step_seconds"], item["predicted_seconds"]
    )
    if not (found.step_seconds > 0 and found.predicted_seconds > 0):
        raise ValueError(f"a step of {found.configuration.model} takes no time")
    return found


def remember(steps: Iterable[MeasuredStep]) -> tuple[MeasuredStep, ...]:
    """Keep steps, each replacing one of the same configuration; returns all that are now kept."""
    known = {step.configuration: step for step in measured_steps()}
    known |= {step.configuration: step for step in steps}
    content = {"format": FORMAT, "steps": [asdict(step) for step in known.values()]}
    write_atomically(measurements_file(), json.dumps(content, indent=1) + "\n")
    return tuple(known.values())

"""What running a job takes besides its steps, as far as it is known: `data/running.toml`.

Start-up, the rate of checkpoints, interruptions and failures, the power of a machine. Much of it is assumed,
so each has a kind, and a front end can say which of them an answer rests on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from foretrain.errors import InvalidData, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.sheets import Kind, data_root, read_toml

STARTUP = "startup_seconds"
CHECKPOINT_RATE = "checkpoint_bytes_per_second"
CHECKPOINT_FIXED = "checkpoint_fixed_seconds"
SPOT_INTERRUPTIONS = "spot_interruptions_per_machine_day"
FAILURES = "failures_per_device_day"
POWER = "machine_power_over_device_tdp"
LARGEST_BATCH = "largest_global_batch_samples"
LARGEST_BATCH_TOKENS = "largest_global_batch_tokens"
OWNED_HOURS = "owned_machine_hours_per_year"
_FILE = "running.toml"


@dataclass(frozen=True, slots=True)
class Default:
    """A quantity of jobs in general, with its interval, kind and source."""

    name: str
    quantiles: Quantiles
    unit: str
    meaning: str
    kind: Kind
    source: str
    note: str = ""


@cache
def defaults() -> dict[str, Default]:
    """All of them, by name."""
    return {name: _default(name, entry) for name, entry in read_toml(data_root() / _FILE).items()}


def default(name: str) -> Default:
    """One of them; an absent one raises `MissingData`."""
    try:
        return defaults()[name]
    except KeyError:
        raise MissingData(f"{_FILE} says nothing of {name}; it knows {', '.join(defaults())}") from None


def _default(name: str, entry: dict[str, object]) -> Default:
    try:
        rest = {key: value for key, value in entry.items() if key not in {"p10", "p50", "p90", "kind"}}
        quantiles = Quantiles(*(float(str(entry[key])) for key in ("p10", "p50", "p90")))
        return Default(name=name, quantiles=quantiles, kind=Kind(str(entry["kind"])), **rest)  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidData(_FILE, f"{name}: {error}") from error

"""DAWNBench's entries: how each trained, as far as it is known, and what its log says."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from foretrain.facts.hardware import Hardware, hardware

SAMPLES = {"ImageNet": 1_281_167, "CIFAR10": 50_000}
_FILE = Path(__file__).parent / "dawnbench_runs.toml"
_MODELS = Path(__file__).parent / "dawnbench_models.py"
_CHOICES = ("network", "micro_batches", "master_weights", "compile", "assumed")


@dataclass(frozen=True, slots=True)
class Phase:
    """Epochs trained at one image size and one batch over all devices."""

    epochs: float
    image_size: int
    batch: int


@dataclass(frozen=True, slots=True)
class Entry:
    """How an entry trained, as far as it is known."""

    task: str
    name: str
    model: str
    hardware: Hardware
    precision: str
    phases: tuple[Phase, ...]
    network: str | None = None
    micro_batches: int = 1
    master_weights: bool = False
    compile: bool = False
    assumed: str = ""

    @property
    def model_name(self) -> str:
        """What to call the model."""
        return self.model.rpartition(":")[2]

    def over(self, epochs: float) -> tuple[Phase, ...]:
        """The phases of a run of `epochs` epochs; the last one extends to the end of the log."""
        phases, left = [], epochs
        for number, phase in enumerate(self.phases, start=1):
            taken = left if number == len(self.phases) else min(left, phase.epochs)
            if taken > 0:
                phases.append(replace(phase, epochs=taken))
            left -= taken
        return tuple(phases)


@dataclass(frozen=True, slots=True)
class Log:
    """What an entry measured: epochs and hours to its end, and the price of its machines."""

    epochs: float
    hours: float
    usd_per_hour: float | None


def read_logs(data: Path) -> dict[tuple[str, str], Log]:
    """Epochs and hours of every log."""
    curves: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in _rows(data / "dawnbench" / "train_curves.csv"):
        curves.setdefault((row["task"], row["entry"]), []).append((float(row["epoch"]), float(row["hours"])))
    prices = {(row["task"], row["entry"]): row["costPerHour"] for row in described(data)}
    return {key: log_of(points, prices.get(key, "")) for key, points in curves.items()}


def log_of(points: Sequence[tuple[float, float]], price: str = "") -> Log:
    """The end of a log. Epochs counted from 0 are one more than they say; swapped columns are put right."""
    epochs, hours = ([point[place] for point in points] for place in (0, 1))
    counted = [float(number) for number in range(1, len(points) + 1)]
    if hours == counted != epochs:
        epochs, hours = hours, epochs
    from_zero = epochs[0] == 0 and hours[0] > 0 and all(epoch == int(epoch) for epoch in epochs)
    return Log(epochs[-1] + from_zero, hours[-1], float(price) if price else None)


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def known_entries() -> list[Entry]:
    """The entries that are described one by one."""
    return [
        Entry(
            task=row["task"],
            name=row["entry"],
            model=row["model"],
            hardware=_hardware(row),
            precision=row["precision"],
            phases=tuple(Phase(*phase) for phase in row["phases"]),
            **{key: row[key] for key in _CHOICES if key in row},
        )
        for row in _file()["run"]
    ]


def _hardware(row: Mapping[str, Any]) -> Hardware:
    """The nodes of an entry: a known machine, or a number of devices of one kind."""
    one = hardware(row["node"] if "node" in row else f"{row['device']}:{row['devices']}")
    nodes = row.get("nodes", 1)
    return replace(one, nodes=nodes, name=f"{one.name} x {nodes}" if nodes > 1 else one.name)


def resnet164_entries(rows: Sequence[Mapping[str, str]]) -> Iterator[Entry]:
    """DAWN's own entries, whose names hold model and device: dawn_resnet164_nb_1k80-gc_tensorflow."""
    known = _file()["resnet164"]
    for row in rows:
        parts = row["entry"].split("_")
        if row["task"] != "CIFAR10" or parts[:2] != ["dawn", "resnet164"]:
            continue
        device_id = known["devices"].get(parts[3].partition("-")[0])
        if device_id is not None:
            yield Entry(
                row["task"],
                row["entry"],
                f"{_MODELS}:{known['models'][parts[2]]}",
                hardware(device_id),
                known["precision"],
                (Phase(1, known["image_size"], known["batch"]),),
                assumed=known["assumed"],
            )


def reason_left_out(row: Mapping[str, str]) -> str:
    """Why an entry is not predicted."""
    if row["task"] == "SQuAD":
        return "no such model known"
    for word, reason in _file()["skipped"].items():
        if word in row["hardware"] and "V100" not in row["hardware"]:
            return str(reason)
    if row["model"].replace("-", "").lower().startswith("resnet50"):
        return "its images or its variant of ResNet-50 are not stated"
    return "no such model known"


def described(data: Path) -> list[dict[str, str]]:
    """What the data set says of every entry."""
    return list(_rows(data / "dawnbench" / "entries.csv"))


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        yield from csv.DictReader(stream)

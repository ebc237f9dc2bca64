"""Placements, configurations and timings of one job: the CSV files of `foretrain scaling`.

    placement,batch,step_seconds          nodes,devices,batch,step_seconds
    1,32,0.117                      or    1,1,32,0.117
    4+4,32,0.162                          2,8,32,0.162

`batch` is per device. Where only the number of devices is given, they are distributed evenly over the nodes.
With a model and hardware, the placements are also predicted, for the timings to correct.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from foretrain.errors import ForetrainError, InvalidData, InvalidRequest, MissingData, nearest
from foretrain.facts.hardware import Hardware
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.prediction.predict import configure
from foretrain.prediction.scenario import Evaluation, evaluate, in_usual_precision, step_context
from foretrain.workloads.workload import Workload

_MOST = 1_000_000
Row = TypeVar("Row")
_PLACED, _COUNTED, _TIME = ("placement",), ("nodes", "devices"), "step_seconds"
_DEVIATIONS = 2.563
"""Between the 10th and the 90th percentile of a normal distribution lie this many standard deviations."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices on each node. No form depends on the order of nodes: `1+2` equals `2+1`.

    `devices_per_node` is the canonical order, the fullest node first; `as_given` is the order to print.
    """

    devices_per_node: tuple[int, ...]
    as_given: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "as_given", self.devices_per_node)
        if not self.devices_per_node or min(self.devices_per_node) < 1:
            raise InvalidRequest(f"a placement has at least one device on each node, not {self}")
        object.__setattr__(self, "devices_per_node", tuple(sorted(self.devices_per_node, reverse=True)))

    def __str__(self) -> str:
        return "+".join(str(count) for count in self.as_given)

    @property
    def nodes(self) -> int:
        """Nodes in use."""
        return len(self.devices_per_node)

    @property
    def devices(self) -> int:
        """Devices on all nodes together."""
        return sum(self.devices_per_node)

    @property
    def fullest(self) -> int:
        """Devices on the node that has most."""
        return self.devices_per_node[0]


def parse_placement(text: str) -> Placement:
    """`4` is four devices on one node, `4+4+2` are three nodes."""
    counts = [part.strip() for part in text.split("+")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < _MOST for part in counts):
        raise InvalidRequest(
            f"placement {text!r} is not devices on each node: 4 is one node with four, 4+4+2 are three nodes"
        )
    return Placement(tuple(int(part) for part in counts))


def spread(nodes: int, devices: int) -> Placement:
    """A number of devices on a number of nodes, as evenly as possible."""
    if not 0 < nodes <= devices:
        raise InvalidRequest(f"{devices} devices cannot use {nodes} nodes; each node has at least one device")
    if devices >= _MOST:
        raise InvalidRequest(f"{devices} devices are beyond any cluster")
    each, over = divmod(devices, nodes)
    return Placement(tuple(each + (index < over) for index in range(nodes)))


@dataclass(frozen=True, slots=True)
class ScalingConfiguration:
    """A placement and the batch of each device."""

    placement: Placement
    batch: int

    def __str__(self) -> str:
        return f"{self.placement} at batch {self.batch}"


@dataclass(frozen=True, slots=True)
class Timing:
    """A configuration and the seconds one of its steps took."""

    configuration: ScalingConfiguration
    step_seconds: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step_seconds) and self.step_seconds > 0):
            raise InvalidRequest(
                f"a step of {self.configuration} took {self.step_seconds} s; give seconds above 0"
            )


def read_timings(file: Path) -> tuple[Timing, ...]:
    """The timings of a CSV file; a malformed one raises `InvalidData` with the row and what is wrong."""

    def timing(cells: Mapping[str, str]) -> Timing:
        return Timing(_configuration(cells), _seconds(cells[_TIME]))

    return tuple(_rows(file, (_TIME,), (), timing, lambda item: item.configuration))


def read_configurations(file: Path) -> tuple[ScalingConfiguration, ...]:
    """The configurations of a CSV file. A column of times is ignored, so a file of timings works, too."""
    return tuple(_rows(file, (), (_TIME,), _configuration))


def _rows(
    file: Path,
    needed: tuple[str, ...],
    ignored: tuple[str, ...],
    read: Callable[[Mapping[str, str]], Row],
    unique: Callable[[Row], ScalingConfiguration] | None = None,
) -> Iterator[Row]:
    """The rows of a file; at most one with the same value of `unique`."""
    seen: dict[ScalingConfiguration | int, int] = {}
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            lines = csv.DictReader(stream, skipinitialspace=True)
            columns = [str(name).strip() for name in lines.fieldnames or ()]
            _check_columns(file, columns, needed, ignored)
            lines.fieldnames = columns
            for line in lines:
                row = _row(file, lines.line_num, line, read)
                key = unique(row) if unique else lines.line_num
                where = seen.setdefault(key, lines.line_num)
                if where != lines.line_num:
                    problem = f"{key} stands in row {where} already; keep one, such as the median"
                    raise InvalidData(str(file), problem, lines.line_num)
                yield row
    except FileNotFoundError:
        header = ", ".join((_PLACED[0], "batch", *needed))
        raise MissingData(f"there is no file {str(file)!r}; give a CSV with the columns {header}") from None
    except IsADirectoryError:
        raise InvalidRequest(f"{str(file)!r} is a folder; name a CSV file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidData(str(file), f"is not a CSV file: {error}") from error
    if not seen:
        raise InvalidData(str(file), "has no rows below its header; add one for each configuration")


def _check_columns(file: Path, columns: list[str], needed: tuple[str, ...], ignored: tuple[str, ...]) -> None:
    places = _PLACED if _PLACED[0] in columns or not set(columns) & set(_COUNTED) else _COUNTED
    wanted = (*places, "batch", *needed)
    missing = [name for name in wanted if name not in columns]
    if missing:
        either = f"placement,batch{',' + _TIME if needed else ''} or nodes,devices in place of placement"
        raise InvalidData(str(file), f"lacks the column {', '.join(missing)}; its header is {either}", 1)
    for name in columns:
        if name not in (*wanted, *ignored):
            near = nearest(name, wanted)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join((*wanted, *ignored))}"
            raise InvalidData(str(file), f"unknown column {name!r}; {hint}", 1)
        if columns.count(name) > 1:
            raise InvalidData(str(file), f"has the column {name!r} twice", 1)


def _row(
    file: Path, number: int, line: Mapping[str | None, Any], read: Callable[[Mapping[str, str]], Row]
) -> Row:
    if None in line or None in line.values():
        raise InvalidData(str(file), "more or fewer values than the header has columns", number)
    try:
        return read({str(name): str(value).strip() for name, value in line.items()})
    except ForetrainError as error:
        raise InvalidData(str(file), str(error), number) from error


def _configuration(cells: Mapping[str, str]) -> ScalingConfiguration:
    if _PLACED[0] in cells:
        place = parse_placement(cells["placement"])
    else:
        place = spread(_count("nodes", cells["nodes"]), _count("devices", cells["devices"]))
    return ScalingConfiguration(place, _count("batch", cells["batch"]))


def _count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidRequest(f"{name} {text!r} is not a whole number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise InvalidRequest(f"{_TIME} {text!r} is not a time in seconds above 0, such as 0.125")
    return seconds


@dataclass(frozen=True, eq=False)
class Columns:
    """Row i of each column belongs to configuration i. `relative_batch` is over the job's reference batch."""

    nodes: Floats
    devices: Floats
    fullest: Floats
    relative_batch: Floats

    def __len__(self) -> int:
        return len(self.nodes)

    def only(self, rows: Sequence[int]) -> Columns:
        """Some of the rows."""
        chosen = list(rows)
        return Columns(
            self.nodes[chosen], self.devices[chosen], self.fullest[chosen], self.relative_batch[chosen]
        )


def columns(configurations: Sequence[ScalingConfiguration], reference_batch: float) -> Columns:
    """Columns of these configurations."""
    places = [item.placement for item in configurations]
    return Columns(
        np.array([place.nodes for place in places], float),
        np.array([place.devices for place in places], float),
        np.array([place.fullest for place in places], float),
        np.array([item.batch / reference_batch for item in configurations], float),
    )


def reference_batch(configurations: Sequence[ScalingConfiguration]) -> float:
    """The middle of a job's batch sizes on a scale of ratios: what all shares of a form refer to."""
    batches = [item.batch for item in configurations]
    return math.sqrt(min(batches) * max(batches))


@dataclass(frozen=True)
class PredictedScaling:
    """A workload on hardware, whose nodes are filled as a placement says; uneven ones as their fullest."""

    workload: Workload
    hardware: Hardware
    parallelism: Parallelism

    @property
    def devices_per_node(self) -> int:
        """What a full node holds."""
        return self.hardware.node.devices if self.hardware.node else self.hardware.devices_per_node

    def seconds(self, placement: Placement, batch: int) -> float:
        """A step of `batch` samples for each device."""
        return self._outcome(placement, batch).seconds

    def error(self, configurations: Sequence[ScalingConfiguration]) -> float:
        """Standard deviation of the predictions' errors, in logarithms: the widest of some intervals."""
        widest = 0.0
        for each in configurations:
            total = self._outcome(each.placement, each.batch).total.quantiles
            widest = max(widest, math.log(total.p90 / max(total.p10, total.p50 / 10)) / _DEVIATIONS)
        return widest

    def _outcome(self, placement: Placement, batch: int) -> Evaluation:
        hardware = self._filled(placement)
        workload = in_usual_precision(self.workload.at(batch=batch), (hardware.device,))
        even = replace(
            self.parallelism, jitter=self.parallelism.jitter or 0.0
        )  # timings show how uneven they are
        context = step_context(workload, hardware, even, OperatorCostModel(), InputOptions())
        return evaluate(context, configure(context, self.parallelism))

    def _filled(self, placement: Placement) -> Hardware:
        hardware, most = self.hardware, self.devices_per_node
        if placement.fullest > most:
            raise InvalidRequest(
                f"placement {placement} has {placement.fullest} devices on a node, {hardware.name} {most}; "
                f"give `on` with at least {placement.fullest} per node"
            )
        name = f"{hardware.device.id}:{placement.fullest}x{placement.nodes}"
        return replace(hardware, name=name, devices_per_node=placement.fullest, nodes=placement.nodes)

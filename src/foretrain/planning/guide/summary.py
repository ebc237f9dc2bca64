"""What follows from the cells of a model: the machine to take for every batch, and when more GPUs pay.

Between machines that do the same work, the best by speed-up per fold of cost is the one whose time times cost
is least, whatever the baseline:

    Δ(a against b) = t_b · c_b / (t_a · c_a)

More GPUs pay where Δ against one of them is at least 1: they buy as many folds of speed as they cost. With
equal prices each, n of them pay from a speed-up of √n. Of machines within 1 % of the best the cheapest is
taken, and the verdict stays with a machine until another is 10 % better.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from foretrain.planning.guide.cells import Cell, Figures, choke_of
from foretrain.planning.guide.machines import Machine
from foretrain.planning.guide.runs import Blank
from foretrain.prediction.advice.bottleneck import Limit

_COUNTED = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}
_SAME = 1.01
_CLEARLY_BETTER = 1.1

Measure = Callable[[Figures], float | None]


@dataclass(frozen=True, slots=True)
class Pick:
    """For one batch the fastest machine, the cheapest and that of best value, by place; None: no such."""

    batch: int
    fastest: int | None
    cheapest: int | None
    best_value: int | None


@dataclass(frozen=True, slots=True)
class Pays:
    """From which global batch on a machine of several GPUs pays against one of them; None: at none told.

    `always`: at every batch that is told of the machine.
    """

    machine: int
    devices: int
    from_batch: int | None
    always: bool


@dataclass(frozen=True, slots=True)
class Kind:
    """What holds back several GPUs of one kind in most cells, when they pay, and that in a sentence."""

    device: str
    limit: Limit
    cells: int
    of_cells: int
    pays: tuple[Pays, ...]
    sentence: str


@dataclass(frozen=True, slots=True)
class Summary:
    """Picks of every batch; cells with the least time and cost of all; kinds of GPU; one sentence."""

    picks: tuple[Pick, ...]
    fastest: Cell | None
    cheapest: Cell | None
    best_value: Cell | None
    kinds: tuple[Kind, ...]
    verdict: str


def summarise(
    machines: Sequence[Machine], batches: Sequence[int], rows: Sequence[tuple[Cell, ...]]
) -> Summary:
    """The summary of a model's cells; times that are only bounds win nothing."""
    told = [cell for row in rows for cell in row if cell.figures and not cell.figures.is_bound]
    by_batch = {batch: [cell for cell in told if cell.batch == batch] for batch in batches}
    kinds = tuple(_kinds(machines, rows))
    return Summary(
        tuple(_pick(batch, cells) for batch, cells in by_batch.items()),
        _least(told, _seconds),
        _least(told, _usd),
        _least(told, _seconds_times_usd),
        kinds,
        _verdict(machines, by_batch, kinds) if told else _without_figures(rows),
    )


def _seconds(figures: Figures) -> float:
    return figures.seconds_per_million_samples


def _usd(figures: Figures) -> float | None:
    return figures.usd_per_million_samples


def _seconds_times_usd(figures: Figures) -> float | None:
    both = figures.time_and_cost
    return None if both is None else both.seconds * both.usd


def _least(cells: Sequence[Cell], measure: Measure) -> Cell | None:
    """The cell with the least of something; of equals the cheapest; None if it is told of none."""
    measured = [
        (value, cell) for cell in cells if cell.figures and (value := measure(cell.figures)) is not None
    ]
    if not measured:
        return None
    least = min(value for value, _ in measured)
    return min((cell for value, cell in measured if value <= _SAME * least), key=_thrift)


def _thrift(cell: Cell) -> tuple[float, int]:
    """Cheaper first, then in the order of the guide."""
    usd = None if cell.figures is None else cell.figures.usd_per_million_samples
    return (math.inf if usd is None else usd, cell.machine)


def _pick(batch: int, cells: Sequence[Cell]) -> Pick:
    found = (_least(cells, measure) for measure in (_seconds, _usd, _seconds_times_usd))
    return Pick(batch, *(None if cell is None else cell.machine for cell in found))


def _kinds(machines: Sequence[Machine], rows: Sequence[tuple[Cell, ...]]) -> Iterator[Kind]:
    """Every kind of device of which there is a machine with several."""
    several: dict[str, list[int]] = {}
    for place, machine in enumerate(machines):
        if machine.devices > 1:
            several.setdefault(machine.hardware.device.id, []).append(place)
    for device, places in several.items():
        limits = Counter(cell.figures.run.limit for place in places for cell in rows[place] if cell.figures)
        if not limits:
            continue
        limit, count = limits.most_common(1)[0]
        pays = tuple(_pays(place, machines[place], rows[place]) for place in places)
        batches = {cell.batch for place in places for cell in rows[place] if cell.figures}
        seen = f"{choke_of(limit)} in {count} of {limits.total()} cells"
        yield Kind(device, limit, count, limits.total(), pays, _of_kind(device, pays, batches, seen))


def _pays(place: int, machine: Machine, row: Sequence[Cell]) -> Pays:
    """The least batch at which, and at all larger ones, Δ against one device is at least 1."""
    deltas = [
        (cell.batch, cell.figures.speedup_per_fold_of_cost)
        for cell in sorted(row, key=lambda each: -each.batch)
        if cell.figures and cell.figures.speedup_per_fold_of_cost is not None
    ]
    paying = list(takewhile(lambda each: each[1] >= 1, deltas))
    from_batch = paying[-1][0] if paying else None
    return Pays(place, machine.devices, from_batch, always=bool(paying) and len(paying) == len(deltas))


def _of_kind(device: str, pays: Sequence[Pays], batches: Collection[int], seen: str) -> str:
    """When several GPUs of a kind pay, in a sentence."""
    starts: dict[int, int] = {}
    for each in pays:
        if each.from_batch is not None:
            starts[each.devices] = min(each.from_batch, starts.get(each.devices, each.from_batch))
    never = sorted({each.devices for each in pays} - set(starts))
    last = f"{'up to' if len(batches) > 1 else 'at'} batch {max(batches):,}"
    if not starts:
        return f"one {device}, do not add any: more do not pay {last} ({seen})"
    if all(each.always for each in pays):
        return f"add GPUs: {_listed(sorted(starts))} {device} pay {_at_all(batches)} ({seen})"
    together: dict[int, list[int]] = {}
    for devices, batch in sorted(starts.items()):
        together.setdefault(batch, []).append(devices)
    said = ", ".join(f"{_listed(counts)} pay from batch {batch:,} on" for batch, counts in together.items())
    more = f"; {_listed(never)} do not pay {last}" if never else ""
    return f"one {device}; {said}{more} ({seen})"


def _at_all(batches: Collection[int]) -> str:
    return f"at batch {max(batches):,}" if len(batches) == 1 else "at every batch"


def _listed(counts: Sequence[int]) -> str:
    *most, last = map(counted, counts)
    return f"{', '.join(most)} and {last}" if most else last


def counted(devices: int) -> str:
    """A number of devices in words, as far as people do."""
    return _COUNTED.get(devices, f"{devices:,}")


def _verdict(
    machines: Sequence[Machine], by_batch: Mapping[int, Sequence[Cell]], kinds: Sequence[Kind]
) -> str:
    """Which machine to take from batch to batch: that of best value, or the fastest if some have no price.

    Of one kind of GPU without a price, when more of them pay.
    """
    told = [cell.figures for cells in by_batch.values() for cell in cells if cell.figures]
    if all(figures.time_and_cost for figures in told):
        return f"best value: {_from_batch_to_batch(machines, by_batch, _seconds_times_usd)}"
    if len(kinds) == 1:
        return kinds[0].sentence
    return f"fastest: {_from_batch_to_batch(machines, by_batch, _seconds)}"


def _without_figures(rows: Sequence[tuple[Cell, ...]]) -> str:
    """What is to be said where no cell has figures that may win."""
    blanks = {cell.blank for row in rows for cell in row}
    if blanks == {Blank.MEMORY}:
        return "it does not fit into any of these machines"
    if blanks == {None}:
        return "only the least times that data sheets allow are known"
    return "nothing can be told of any machine"


def _from_batch_to_batch(
    machines: Sequence[Machine], by_batch: Mapping[int, Sequence[Cell]], measure: Measure
) -> str:
    """The best machine of the smallest batch, and from which batch on others are clearly better."""
    changes: list[tuple[int, int]] = []
    for batch, cells in by_batch.items():
        values = {cell.machine: measure(cell.figures) for cell in cells if cell.figures}
        best = _least(cells, measure)
        if best is None:
            continue
        held = values.get(changes[-1][1]) if changes else None
        least = values[best.machine]
        if held is None or (least is not None and held > _CLEARLY_BETTER * least):
            changes.append((batch, best.machine))
    (_, first), *later = changes
    said = _named(machines[first])
    said += "".join(f", {_named(machines[place])} from batch {batch:,} on" for batch, place in later)
    return said if later else f"{said} {_at_all(by_batch)}"


def _named(machine: Machine) -> str:
    hardware = machine.hardware
    if hardware.offer is not None or hardware.node is not None or hardware.nodes > 1:
        return machine.name
    return f"{counted(machine.devices)} {hardware.device.id}"

"""The summary of the cells of a model: the best machine for every batch, and when more GPUs pay.

Between machines that do the same work, the best by speed-up per fold of cost is the one with the least
time x cost, whatever the baseline:

    Δ(a against b) = t_b · c_b / (t_a · c_a)

More GPUs pay where Δ against one of them is at least 1: they buy as many folds of speed as they cost. With
equal prices, n of them pay from a speed-up of √n. Of machines within 1 % of the best the cheapest is taken,
and the verdict keeps a machine until another is 10 % better.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from foretrain.planning.guide.cells import Blank, CellFigures, GuideCell, Machine, choke_of
from foretrain.prediction.advice.bottleneck import Limit

_COUNTED = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}
_SAME = 1.01
"""Machines within 1 % are equals, of which the cheapest is named."""
_CLEARLY_BETTER = 1.1
"""A machine replaces the one before only if that is 10 % worse: the sentence should not alternate."""

Measure = Callable[[CellFigures], float | None]


@dataclass(frozen=True, slots=True)
class Pick:
    """For one batch the fastest, the cheapest and the best-value machine, by index; None without one."""

    batch: int
    fastest: int | None
    cheapest: int | None
    best_value: int | None


@dataclass(frozen=True, slots=True)
class Pays:
    """The global batch from which several GPUs pay against one of them; None if they never do.

    `always`: they pay at every batch with figures.
    """

    machine: int
    devices: int
    from_batch: int | None
    always: bool


@dataclass(frozen=True, slots=True)
class KindSummary:
    """What limits several GPUs of one kind in most cells, when they pay, and a sentence of both."""

    device: str
    limit: Limit
    cells: int
    of_cells: int
    pays: tuple[Pays, ...]
    sentence: str


@dataclass(frozen=True, slots=True)
class Summary:
    """Picks of every batch; the cells with the least time and cost; kinds of GPU; a verdict."""

    picks: tuple[Pick, ...]
    fastest: GuideCell | None
    cheapest: GuideCell | None
    best_value: GuideCell | None
    kinds: tuple[KindSummary, ...]
    verdict: str


def summarise(
    machines: Sequence[Machine], batches: Sequence[int], rows: Sequence[tuple[GuideCell, ...]]
) -> Summary:
    """The summary of the cells of a model; times that are only bounds are not compared."""
    known = [cell for row in rows for cell in row if cell.figures and not cell.figures.is_bound]
    by_batch = {batch: [cell for cell in known if cell.batch == batch] for batch in batches}
    kinds = tuple(_kinds(machines, rows))
    return Summary(
        tuple(_pick(batch, cells) for batch, cells in by_batch.items()),
        _least(known, _seconds),
        _least(known, _usd),
        _least(known, _seconds_times_usd),
        kinds,
        _verdict(machines, by_batch, kinds) if known else _without_figures(rows),
    )


def _seconds(figures: CellFigures) -> float:
    return figures.seconds_per_million_samples


def _usd(figures: CellFigures) -> float | None:
    return figures.usd_per_million_samples


def _seconds_times_usd(figures: CellFigures) -> float | None:
    both = figures.time_and_cost
    return None if both is None else both.seconds * both.usd


def _least(cells: Sequence[GuideCell], measure: Measure) -> GuideCell | None:
    """The cell with the least of a measure; of equals the cheapest; None if none has it."""
    measured = [
        (value, cell) for cell in cells if cell.figures and (value := measure(cell.figures)) is not None
    ]
    if not measured:
        return None
    least = min(value for value, _ in measured)
    return min((cell for value, cell in measured if value <= _SAME * least), key=_thrift)


def _thrift(cell: GuideCell) -> tuple[float, int]:
    """Cheaper first, then in the order of the guide."""
    usd = None if cell.figures is None else cell.figures.usd_per_million_samples
    return (math.inf if usd is None else usd, cell.machine)


def _pick(batch: int, cells: Sequence[GuideCell]) -> Pick:
    best = (_least(cells, measure) for measure in (_seconds, _usd, _seconds_times_usd))
    return Pick(batch, *(None if cell is None else cell.machine for cell in best))


def _kinds(machines: Sequence[Machine], rows: Sequence[tuple[GuideCell, ...]]) -> Iterator[KindSummary]:
    """Every kind of device with a machine of several."""
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
        evidence = f"{choke_of(limit)} in {count} of {limits.total()} cells"
        yield KindSummary(
            device, limit, count, limits.total(), pays, _of_kind(device, pays, batches, evidence)
        )


def _pays(place: int, machine: Machine, row: Sequence[GuideCell]) -> Pays:
    """The least batch at which, and at all larger ones, Δ against one device is at least 1."""
    deltas = [
        (cell.batch, cell.figures.speedup_per_fold_of_cost)
        for cell in sorted(row, key=lambda each: -each.batch)
        if cell.figures and cell.figures.speedup_per_fold_of_cost is not None
    ]
    paying = list(takewhile(lambda each: each[1] >= 1, deltas))
    from_batch = paying[-1][0] if paying else None
    return Pays(place, machine.devices, from_batch, always=bool(paying) and len(paying) == len(deltas))


def _of_kind(device: str, pays: Sequence[Pays], batches: Collection[int], evidence: str) -> str:
    """When several GPUs of a kind pay, in a sentence."""
    starts: dict[int, int] = {}
    for each in pays:
        if each.from_batch is not None:
            starts[each.devices] = min(each.from_batch, starts.get(each.devices, each.from_batch))
    never = sorted({each.devices for each in pays} - set(starts))
    last = f"{'up to' if len(batches) > 1 else 'at'} batch {max(batches):,}"
    if not starts:
        return f"one {device}, do not add any: more do not pay {last} ({evidence})"
    if all(each.always for each in pays):
        return f"add GPUs: {_listed(sorted(starts))} {device} pay {_at_all(batches)} ({evidence})"
    together: dict[int, list[int]] = {}
    for devices, batch in sorted(starts.items()):
        together.setdefault(batch, []).append(devices)
    paying = ", ".join(f"{_listed(counts)} pay from batch {batch:,} on" for batch, counts in together.items())
    more = f"; {_listed(never)} do not pay {last}" if never else ""
    return f"one {device}; {paying}{more} ({evidence})"


def _at_all(batches: Collection[int]) -> str:
    return f"at batch {max(batches):,}" if len(batches) == 1 else "at every batch"


def _listed(counts: Sequence[int]) -> str:
    *most, last = map(spell_count, counts)
    return f"{', '.join(most)} and {last}" if most else last


def spell_count(devices: int) -> str:
    """A number of devices, in words up to eight."""
    return _COUNTED.get(devices, f"{devices:,}")


def _verdict(
    machines: Sequence[Machine], by_batch: Mapping[int, Sequence[GuideCell]], kinds: Sequence[KindSummary]
) -> str:
    """The machine to take from batch to batch: of best value, or the fastest if some have no price.

    For one kind of GPU without a price: when more of them pay.
    """
    known = [cell.figures for cells in by_batch.values() for cell in cells if cell.figures]
    if all(figures.time_and_cost for figures in known):
        return f"best value: {_from_batch_to_batch(machines, by_batch, _seconds_times_usd)}"
    if len(kinds) == 1:
        return kinds[0].sentence
    return f"fastest: {_from_batch_to_batch(machines, by_batch, _seconds)}"


def _without_figures(rows: Sequence[tuple[GuideCell, ...]]) -> str:
    """The verdict where no cell has figures to compare."""
    blanks = {cell.blank for row in rows for cell in row}
    if blanks == {Blank.MEMORY}:
        return "it fits into none of these machines"
    if blanks == {None}:
        return "only the least times that data sheets allow are known"
    return "unknown on every machine"


def _from_batch_to_batch(
    machines: Sequence[Machine], by_batch: Mapping[int, Sequence[GuideCell]], measure: Measure
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
    text = _named(machines[first])
    text += "".join(f", {_named(machines[place])} from batch {batch:,} on" for batch, place in later)
    return text if later else f"{text} {_at_all(by_batch)}"


def _named(machine: Machine) -> str:
    hardware = machine.hardware
    if hardware.offer is not None or hardware.node is not None or hardware.nodes > 1:
        return machine.name
    return f"{spell_count(machine.devices)} {hardware.device.id}"

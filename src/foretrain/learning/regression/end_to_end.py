"""End-to-end regression, a model from the literature: the time of a job from a handful of its features.

    t = b0 + Σ b_k · φ_k ,   φ_k = [iterations] · f or f · g ,   f, g among  x and 1/x  of

batch, GPUs, GFLOP/s of the device, threads and disk delay. Only features that vary in the timings are
offered; which terms stay is decided by stepwise selection with partial F-tests. Errors count relative to the
time (weights 1/t²), since runs differ by orders of magnitude. Iterations multiply: a run of twice as many
has every term once more, so they have no inverse. A feature of fewer than four values has one power only.

The model does not represent how a device executes the network: it can predict other batch sizes, GPU counts
and, from several devices, other computing powers, of the one network that was timed. The interval is the
regression's own, with the error each configuration has when it is left out of the fit; extrapolations it
cannot make are refused.

Reference: E. Gianniti, L. Zhang, D. Ardagna, "Performance prediction of GPU-based deep learning
applications", CLOSER 2019, 279-286.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.devices import device
from foretrain.learning.regression.stepwise import ENTER, LEAVE, Selection, select
from foretrain.learning.regression.timings import Configuration, Timing
from foretrain.prediction.operators.listing import Floats

ITERATIONS = "iterations"
FEATURES = ("batch", "gpus", "gflop_per_second", "threads", "disk_delay_seconds", ITERATIONS)
_TOGETHER = 2
"""How many features a cross term has, iterations not counted."""
_LEAST_VALUES_OF_A_CURVE = 4
"""Values of a feature below which x and 1/x together would only join the dots, and mislead beyond them."""
_NATURAL = {
    "batch": 1,
    "gpus": 1,
    "gflop_per_second": -1,
    "threads": -1,
    "disk_delay_seconds": 1,
    ITERATIONS: 1,
}
"""How time goes with each feature, the others kept: with the work, against the speed."""
FORMAT = 1
LEAST_CONFIGURATIONS = 3
_SAME = 1e-9


@dataclass(frozen=True)
class Term:
    """A product of features, each to the power 1 or -1."""

    powers: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        over = [name for name, power in self.powers if power > 0]
        under = [name for name, power in self.powers if power < 0]
        return " / ".join([" · ".join(over) or "1", *under])

    def value(self, features: Mapping[str, float]) -> float:
        """The term at some features."""
        return math.prod(features[name] ** power for name, power in self.powers)


def candidates(powers: Mapping[str, Sequence[int]]) -> tuple[Term, ...]:
    """All terms of features that vary, each to the powers it may have."""
    return tuple(_terms(powers))


def _terms(powers: Mapping[str, Sequence[int]]) -> Iterator[Term]:
    scaled = [((ITERATIONS, 1),)] if ITERATIONS in powers else []
    others = [name for name in powers if name != ITERATIONS]
    yield from (Term(each) for each in scaled)
    for count in range(1, _TOGETHER + 1):
        for names in combinations(others, count):
            for chosen in product(*(powers[name] for name in names)):
                own = tuple(zip(names, chosen, strict=True))
                yield Term(own)
                yield from (Term((*own, *each)) for each in scaled)


def powers_of(name: str, values: Sequence[float]) -> tuple[int, ...]:
    """Both powers where there are values enough for a curve; the natural one where there are not."""
    if min(values) <= 0:
        return (1,)
    return (1, -1) if len(set(values)) >= _LEAST_VALUES_OF_A_CURVE else (_NATURAL[name],)


def features_of(configuration: Configuration) -> dict[str, float]:
    """The numbers the regression looks at."""
    gflop = device(configuration.device).sheet.number("fp32_flop_per_second") / 1e9
    rest = {name: getattr(configuration, name) for name in FEATURES if name != "gflop_per_second"}
    return {**rest, "gflop_per_second": gflop}


@dataclass(frozen=True)
class Deviation:
    """A relative standard deviation, and the degrees of freedom it was found with."""

    relative: float
    freedom: int

    @property
    def p90(self) -> float:
        """How far above the median the 90th percentile of Student's t lies."""
        from scipy.special import stdtrit

        return float(stdtrit(self.freedom, 0.9)) * self.relative


@dataclass(frozen=True, eq=False)
class EndToEndModel:
    """A fitted regression.

    `coefficients` and `covariance` have the constant first. `seen` and `unseen` say how far off the fit is,
    relatively, on configurations and on computing powers left out of it; the latter is None where fewer than
    three were timed. `fixed` are the features that did not vary, `ranges` those that did.
    """

    model: str
    terms: tuple[Term, ...]
    coefficients: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    seen: Deviation
    unseen: Deviation | None
    fixed: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]
    timings: int
    devices: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"{self.coefficients[0]:.4g}"]
        parts += [f"{b:+.4g} · ({term})" for term, b in zip(self.terms, self.coefficients[1:], strict=True)]
        return "seconds = " + " ".join(parts)

    def predict(self, configuration: Configuration) -> Quantiles:
        """The seconds of a run, with an 80 % interval.

        Refused where a feature differs that never did in the timings, or where the regression has gone below
        zero: it says nothing there.
        """
        self._check(configuration)
        p50 = self.seconds(configuration)
        if p50 <= 0:
            raise MissingData(
                f"the end-to-end regression is negative at {_described(configuration)}: its {self.timings} "
                f"timings ({self._spans()}) are too far from it; time a run nearer by"
            )
        row = self._row(configuration)
        shape = float(row @ np.array(self.covariance) @ row)
        deviation = self.seen if configuration.device in self.devices else self.unseen or self.seen
        off = deviation.p90 * math.sqrt(p50**2 + shape)
        return Quantiles(max(0.0, p50 - off), p50, p50 + off)

    def seconds(self, configuration: Configuration) -> float:
        """The bare sum of the terms, which may be anything far from what was timed."""
        return float(self._row(configuration) @ np.array(self.coefficients))

    def _row(self, configuration: Configuration) -> Floats:
        features = features_of(configuration)
        return np.array([1.0, *(term.value(features) for term in self.terms)])

    def _check(self, configuration: Configuration) -> None:
        features = features_of(configuration)
        zero = [
            name for term in self.terms for name, power in term.powers if power < 0 and features[name] == 0
        ]
        off = [
            f"{name} {features[name]:g} (all timings: {value:g})"
            for name, value in self.fixed.items()
            if abs(features[name] - value) > _SAME * max(abs(value), 1.0)
        ]
        off += [f"{name} 0 (timings: {self.ranges[name][0]:g} and more)" for name in dict.fromkeys(zero)]
        if off:
            raise InvalidRequest(
                f"the end-to-end regression cannot predict {', '.join(off)}; add timings where that differs"
            )

    def _spans(self) -> str:
        return ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in self.ranges.items())


def fit(timings: Sequence[Timing], enter: float = ENTER, leave: float = LEAVE) -> EndToEndModel:
    """The regression of a network's timings; too few of them, or of several networks, are refused."""
    models = sorted({timing.model for timing in timings})
    if len(models) > 1:
        raise InvalidRequest(
            f"an end-to-end regression is of one network; these are timings of {', '.join(models)}"
        )
    rows = [features_of(timing.configuration) for timing in timings]
    varying, fixed = _varying(rows)
    distinct = len({tuple(row.values()) for row in rows})
    if distinct < LEAST_CONFIGURATIONS:
        raise MissingData(
            f"timings of {distinct} configurations are too few for a regression: give at least "
            f"{LEAST_CONFIGURATIONS} that differ in {', '.join(FEATURES)}"
        )
    offered = candidates({name: powers_of(name, [row[name] for row in rows]) for name in varying})
    columns = np.array([[term.value(row) for term in offered] for row in rows])
    seconds = np.array([timing.seconds for timing in timings])
    selection = select(columns, seconds, seconds**-2.0, enter, leave, most=distinct - 2)
    return EndToEndModel(
        model=models[0],
        terms=tuple(offered[index] for index in selection.terms),
        coefficients=tuple(selection.coefficients.tolist()),
        covariance=tuple(tuple(line) for line in selection.covariance.tolist()),
        seen=_deviation(selection, [tuple(row.values()) for row in rows]),
        unseen=_of_powers(selection, [row["gflop_per_second"] for row in rows]),
        fixed=fixed,
        ranges={name: (min(r[name] for r in rows), max(r[name] for r in rows)) for name in varying},
        timings=len(timings),
        devices=tuple(sorted({timing.configuration.device for timing in timings})),
    )


def _varying(rows: Sequence[Mapping[str, float]]) -> tuple[list[str], dict[str, float]]:
    varying, fixed = [], {}
    for name in FEATURES:
        values = [row[name] for row in rows]
        if values and max(values) - min(values) > _SAME * max(map(abs, values)):
            varying.append(name)
        elif values:
            fixed[name] = values[0]
    return varying, fixed


def _deviation(selection: Selection, labels: Sequence[Hashable]) -> Deviation:
    """Of the fit or of what is left out of it by label, whichever is larger: terms were chosen to fit."""
    numbers: dict[Hashable, int] = {}
    groups = np.array([numbers.setdefault(label, len(numbers)) for label in labels], np.int64)
    fitted = float(selection.residuals @ selection.residuals) / selection.freedom
    left_out = float(np.mean(selection.left_out(groups) ** 2))
    return Deviation(math.sqrt(max(fitted, left_out)), len(numbers) - 1)


def _of_powers(selection: Selection, gflop_per_second: Sequence[float]) -> Deviation | None:
    if len(set(gflop_per_second)) < LEAST_CONFIGURATIONS:
        return None
    return _deviation(selection, gflop_per_second)


def _described(configuration: Configuration) -> str:
    return ", ".join(f"{name} {value}" for name, value in asdict(configuration).items())


def write(model: EndToEndModel, file: Path) -> None:
    """Keep a regression as JSON."""
    content = {"format": FORMAT, "kind": "end-to-end regression", **asdict(model)}
    content["terms"] = [dict(term.powers) for term in model.terms]
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read(file: Path) -> EndToEndModel:
    """A regression kept as JSON."""
    if not file.is_file():
        raise MissingData(f"no regression {file}; fit one from timings first")
    try:
        raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if raw.pop("format") != FORMAT or raw.pop("kind") != "end-to-end regression":
            raise InvalidData(str(file), f"not an end-to-end regression of format {FORMAT}")
        raw["terms"] = tuple(Term(tuple(powers.items())) for powers in raw["terms"])
        raw["coefficients"] = tuple(raw["coefficients"])
        raw["covariance"] = tuple(tuple(line) for line in raw["covariance"])
        raw["ranges"] = {name: (low, high) for name, (low, high) in raw["ranges"].items()}
        raw["devices"] = tuple(raw["devices"])
        raw["seen"] = Deviation(**raw["seen"])
        raw["unseen"] = Deviation(**raw["unseen"]) if raw["unseen"] else None
        return EndToEndModel(**raw)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidData(str(file), f"not an end-to-end regression: {error}") from error

"""Scaling laws: the loss a language model of some size reaches after some number of tokens, as published.

Two forms, whose constants are in `facts/data/scaling_laws.toml`, each with its source and range:

    parametric    L(N, D) = E + A / N^α + B / D^β               Hoffmann et al. 2022, Besiroglu et al. 2024
    allocation    N = k · (C / unit)^p                          Kaplan et al. 2020, DeepSeek LLM 2024

An allocation says which size is best for the compute C spent on it, not what loss it reaches. Under a budget
of C = 6 N D the parametric form is least at

    N = G (C / 6)^(β / (α + β))        D = (C / 6)^(α / (α + β)) / G        G = (α A / (β B))^(1 / (α + β))

The loss is that of new text, every token seen once, with a learning rate schedule made for D. Its level is
that of the data and tokenizer the law was fitted on; the best size depends on them less.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Protocol

from foretrain.convergence.options import REFERENCE_LAW
from foretrain.errors import InvalidData
from foretrain.estimates import Z90, Deviation, Estimate, Part
from foretrain.facts.sheets import FactKind, data_root, read_toml
from foretrain.registry import Registry

_FILE = "scaling_laws.toml"
LOSS_UNIT = "nats per token"
FLOP_PER_PARAMETER_AND_TOKEN = 6
"""Multiplications and additions of a weight in the forward pass, and twice as many in the backward pass."""


class ModelSize(Protocol):
    """What a law may count of a model: all with embeddings once, none of them, or training FLOP per token."""

    @property
    def parameters_with_embedding(self) -> int: ...

    @property
    def parameters_without_embedding(self) -> int: ...

    @property
    def block_flop_per_token(self) -> float: ...


@dataclass(frozen=True)
class LawRange:
    """The least and most of a quantity that a law was fitted on."""

    quantity: str
    least: float
    most: float

    def contains(self, value: float) -> bool:
        """Whether a value is no extrapolation; the ends are rounded figures."""
        return self.least * 0.99 <= value <= self.most * 1.01


@dataclass(frozen=True)
class ScalingLaw(ABC):
    """A published law. Final classes differ in the form of the equation; `range` is what it was fitted on."""

    FORM: ClassVar[str]
    predicts_loss: ClassVar[bool] = False

    name: str
    title: str
    source: str
    kind: FactKind
    data: str
    tokenizer: str
    counts: str
    ranges: tuple[LawRange, ...]
    constants: Mapping[str, float]
    note: str

    def size(self, model: ModelSize) -> float:
        """The size of a model as the authors of the law count it."""
        return float(getattr(model, _COUNTS[self.counts]))

    def flop(self, model: ModelSize, tokens: float) -> float:
        """Training FLOP as the authors of the law count them."""
        per_token = 1 if self.counts == _BY_FLOP else FLOP_PER_PARAMETER_AND_TOKEN
        return per_token * self.size(model) * tokens

    def extrapolations(self, model: ModelSize, tokens: float) -> tuple[tuple[LawRange, float], ...]:
        """The ranges that a model and its tokens lie outside of, with the value that does."""
        values = {"parameters": self.size(model), "tokens": tokens, "flop": self.flop(model, tokens)}
        pairs = ((each, values[each.quantity]) for each in self.ranges)
        return tuple((each, value) for each, value in pairs if not each.contains(value))

    @abstractmethod
    def regret(self, model: ModelSize, tokens: float) -> float:
        """What is least at the best size: the loss, or the distance from the law's own allocation."""


@dataclass(frozen=True)
class ParametricLaw(ScalingLaw):
    """L(N, D) = E + A / N^α + B / D^β.

    `covariance` is that of the estimates of (E, ln A, ln B, α, β), where it is known.
    """

    FORM = "parametric"
    predicts_loss = True

    covariance: tuple[tuple[float, ...], ...] = ()

    def terms(self, model: ModelSize, tokens: float) -> tuple[float, float, float]:
        """The loss of the best possible model, and what finite size and finite data add to it."""
        known = self.constants
        return (
            known["E"],
            known["A"] / self.size(model) ** known["alpha"],
            known["B"] / tokens ** known["beta"],
        )

    def loss(self, model: ModelSize, tokens: float) -> float:
        """The expected loss."""
        return sum(self.terms(model, tokens))

    regret = loss

    def deviation(self, model: ModelSize, tokens: float) -> float:
        """How far p10 and p90 lie from the loss because the constants are estimates: z √(gᵀ Σ g).

        g is the derivative of the loss by (E, ln A, ln B, α, β). 0 where no covariance was published or could
        be computed.
        """
        if not self.covariance:
            return 0.0
        _, of_size, of_data = self.terms(model, tokens)
        slope = (
            1.0,
            of_size,
            of_data,
            -of_size * math.log(self.size(model)),
            -of_data * math.log(tokens),
        )
        variance = math.fsum(
            slope[row] * entry * slope[column]
            for row, entries in enumerate(self.covariance)
            for column, entry in enumerate(entries)
        )
        return Z90 * math.sqrt(max(0.0, variance))

    def optimum(self, flop: float) -> tuple[float, float]:
        """Parameters and tokens of the least loss at 6 N D = flop, in closed form."""
        known = self.constants
        alpha, beta = known["alpha"], known["beta"]
        scale = (alpha * known["A"] / (beta * known["B"])) ** (1 / (alpha + beta))
        product = flop / FLOP_PER_PARAMETER_AND_TOKEN
        size = scale * product ** (beta / (alpha + beta))
        return size, product / size


@dataclass(frozen=True)
class AllocationLaw(ScalingLaw):
    """size = k · (C / unit)^p with C the compute spent on it, by the authors' count of both."""

    FORM = "allocation"

    def best_size(self, flop: float) -> float:
        """The size for a compute budget."""
        known = self.constants
        return float(known["size"] * (flop / known["flop_unit"]) ** known["exponent"])

    def regret(self, model: ModelSize, tokens: float) -> float:
        """The distance |ln ratio| of the size from the best for the compute that the run itself spends."""
        return abs(math.log(self.size(model) / self.best_size(self.flop(model, tokens))))


BATCH_LAW = "deepseek-2024"
"""The law that also says which batch is best."""


def best_batch_tokens(model: ModelSize, tokens: float) -> float:
    """Tokens of the global batch that trains best at some compute: 0.2920 C^0.3271 (DeepSeek LLM)."""
    law = laws()[BATCH_LAW]
    known = law.constants
    return float(known["batch_tokens"] * law.flop(model, tokens) ** known["batch_exponent"])


@dataclass(frozen=True)
class LossForecast:
    """The loss expected of a run: its parts, and how far each source of uncertainty moves it."""

    law: str
    estimate: Estimate
    sources: Mapping[str, Deviation]


def forecast_loss(
    law: ParametricLaw, model: ModelSize, tokens: float, fewer_tokens: float, more_tokens: float
) -> LossForecast:
    """The loss by a law, with what moves it: other laws of the same data, its constants, the throughput.

    `fewer_tokens` and `more_tokens` are those trained on where steps take as long as their p90 and p10. The
    sources err independently, so their deviations add in quadrature.
    """
    expected, spread = law.loss(model, tokens), law.deviation(model, tokens)
    others = [
        each.loss(model, tokens) - expected
        for each in laws().values()
        if isinstance(each, ParametricLaw) and each.data == law.data and each.name != law.name
    ]
    sources = {
        "constants of the law": Deviation(spread, spread),
        "disagreement of laws": Deviation(max((0.0, *(-each for each in others))), max((0.0, *others))),
        "throughput": Deviation(
            expected - law.loss(model, more_tokens), law.loss(model, fewer_tokens) - expected
        ),
    }
    parts = (
        Part(name, value, law.source)
        for name, value in zip(("irreducible", "model size", "data"), law.terms(model, tokens), strict=True)
    )
    common = Deviation(
        math.hypot(*(each.below for each in sources.values())),
        math.hypot(*(each.above for each in sources.values())),
    )
    return LossForecast(law.name, Estimate(LOSS_UNIT, tuple(parts), common), sources)


_BY_FLOP = "training FLOP per token"
_COUNTS = {
    "embeddings": "parameters_with_embedding",
    "no embeddings": "parameters_without_embedding",
    _BY_FLOP: "block_flop_per_token",
}
"""What `counts` of a law means, as a property of a model."""
_FORMS: tuple[type[ScalingLaw], ...] = (ParametricLaw, AllocationLaw)


@cache
def laws() -> Registry[ScalingLaw]:
    """All laws, by name; the first is the reference."""
    entries = read_toml(data_root() / _FILE)
    try:
        read = [_read_law(name, dict(entry)) for name, entry in entries.items()]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidData(_FILE, f"a law lacks a field or has an unknown one: {error}") from error
    return Registry("scaling law", read, name=lambda law: law.name, hint=f"Known: {', '.join(entries)}")


def loss_law(chosen: ScalingLaw) -> ParametricLaw:
    """The law that predicts the loss: the chosen one, or the reference where that predicts none."""
    law = chosen if chosen.predicts_loss else laws()[REFERENCE_LAW]
    assert isinstance(law, ParametricLaw)
    return law


def _read_law(name: str, entry: dict[str, Any]) -> ScalingLaw:
    forms = {each.FORM: each for each in _FORMS}
    form = forms[entry.pop("form")]
    ranges = _ranges((quantity, entry.pop(quantity, None)) for quantity in ("parameters", "tokens", "flop"))
    if entry["counts"] not in _COUNTS:
        raise ValueError(f"{name} counts {entry['counts']!r}; known: {', '.join(_COUNTS)}")
    if "covariance" in entry:
        entry["covariance"] = tuple(map(tuple, entry["covariance"]))
    return form(name=name, ranges=ranges, **{**entry, "kind": FactKind(entry["kind"])})


def _ranges(stated: Iterable[tuple[str, list[float] | None]]) -> tuple[LawRange, ...]:
    return tuple(LawRange(quantity, *ends) for quantity, ends in stated if ends is not None)

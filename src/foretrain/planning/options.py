"""What may be chosen about a plan: limits, machines, and what owning them would cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretrain.convergence.options import REFERENCE_LAW
from foretrain.decoding import COUNT, DURATION, MONEY, TEXT, number, option, texts, whole_number
from foretrain.errors import InvalidRequest
from foretrain.facts.options import PlaceOptions
from foretrain.panels import LENGTH, MACHINES, MODEL, MONEY_AND_ENERGY, OWNING
from foretrain.prediction.options import NetworkOptions

EVEN = 0.5
"""By default a plan meets a limit if its median does."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Deadline (seconds) and budget (USD) of a job, and the probability with which they must be met."""

    deadline: float | None = option(DURATION, "Maximum duration of the job, e.g. 12h or 2d.", panel=LENGTH)
    budget: float | None = option(MONEY, "Maximum cost, e.g. 200usd or $1,500.", panel=MONEY_AND_ENERGY)
    confidence: float = option(
        number(),
        "Required probability of meeting `deadline` and `budget`, e.g. 0.9.",
        default=EVEN,
        panel=LENGTH,
    )

    def __post_init__(self) -> None:
        for name in ("deadline", "budget"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidRequest(f"`{name}` must be above 0, got {value:g}")
        if not 0 < self.confidence < 1:
            raise InvalidRequest(f"`confidence` must be between 0 and 1, got {self.confidence:g}")

    @property
    def any(self) -> bool:
        """Whether there is a limit."""
        return self.deadline is not None or self.budget is not None

    @property
    def most_seconds(self) -> float:
        """The deadline; infinite without one."""
        return math.inf if self.deadline is None else self.deadline

    @property
    def most_usd(self) -> float:
        """The budget; infinite without one."""
        return math.inf if self.budget is None else self.budget


@dataclass(frozen=True, kw_only=True)
class MachineOptions(PlaceOptions, NetworkOptions):
    """Which machines to consider; `links` and `network` replace what is known of them."""

    gpu: tuple[str, ...] = option(
        texts(),
        "Only these GPUs or families, comma-separated.",
        default=(),
        panel=MACHINES,
        complete="device",
    )
    max_gpus: int = option(whole_number(1), "Maximum number of GPUs.", default=64, panel=MACHINES)


@dataclass(frozen=True, kw_only=True)
class SizeOptions:
    """By which scaling law the size of a model is chosen, and what is fixed of it."""

    law: str = option(
        TEXT,
        "Scaling law that chooses: besiroglu-2024 (default), hoffmann-2022, deepseek-2024 or kaplan-2020.",
        default=REFERENCE_LAW,
        panel=MODEL,
        metavar="NAME",
        complete="law",
    )
    params: float | None = option(
        COUNT,
        "Train a model of about this size instead of choosing one, e.g. 7B.",
        panel=MODEL,
        metavar="COUNT",
    )
    vocabulary: int | None = option(
        whole_number(2), "Tokens of the vocabulary (default: 32,000, as Llama).", panel=MODEL
    )


@dataclass(frozen=True, kw_only=True)
class OwningOptions:
    """How often the job is run per year, and what owning machines like the chosen ones would cost."""

    jobs_per_year: float | None = option(
        number(above=0), "Number of times the job runs per year; adds a comparison with buying.", panel=OWNING
    )
    buy_price: float | None = option(MONEY, "Total purchase price of the selected machines.", panel=OWNING)
    usd_per_kwh: float | None = option(MONEY, "Electricity price for owned machines.", panel=OWNING)

    def __post_init__(self) -> None:
        if self.jobs_per_year is not None and not 0 < self.jobs_per_year < math.inf:
            raise InvalidRequest(f"`jobs_per_year` must be finite and above 0, got {self.jobs_per_year:g}")
        if self.buy_price is not None and not self.buy_price > 0:
            raise InvalidRequest(f"`buy_price` must be above 0, got {self.buy_price:g}")
        if self.jobs_per_year is None and (self.buy_price is not None or self.usd_per_kwh is not None):
            raise InvalidRequest("`buy_price` and `usd_per_kwh` are about buying: give `jobs_per_year` too")


@dataclass(frozen=True, kw_only=True)
class RentOrBuyOptions:
    """One machine to buy against one to rent."""

    price: float = option(MONEY, "Purchase price of the machine, e.g. 8000.", required=True, panel=OWNING)
    rent: float | None = option(MONEY, "Rent per hour, e.g. 1.50.", panel=OWNING)
    offer: str | None = option(
        TEXT,
        "Cloud offer to rent, e.g. lambda:gpu_8x_h100_sxm5.",
        panel=OWNING,
        complete="instance",
        metavar="CLOUD:INSTANCE",
    )
    relative_performance: float = option(
        number(above=0),
        "Performance of the rented machine relative to the owned one, e.g. 0.7.",
        default=1.0,
        panel=OWNING,
    )
    hours_per_year: float | None = option(
        number(above=0), "Hours of use per year; 2,000 is a full-time working year.", panel=OWNING
    )
    utilisation: float | None = option(
        number(), "Use as a fraction of all 8,760 hours of a year, e.g. 0.5.", panel=OWNING
    )
    watts: float | None = option(
        number(0), "Power draw of the owned machine under load.", panel=MONEY_AND_ENERGY
    )
    device: str | None = option(
        TEXT,
        "Use the TDP of DEVICE:COUNT as the power draw.",
        panel=MONEY_AND_ENERGY,
        metavar="DEVICE[:COUNT]",
        complete="device",
    )
    usd_per_kwh: float = option(MONEY, "Price of electricity.", default=0.0, panel=MONEY_AND_ENERGY)
    pue: float = option(
        number(),
        "Power usage effectiveness: total power / IT power; 1 means no cooling.",
        default=1.0,
        panel=MONEY_AND_ENERGY,
    )
    hosting: float = option(
        MONEY, "Cost of rack, network and repairs in USD per year.", default=0.0, panel=MONEY_AND_ENERGY
    )
    resale: float = option(MONEY, "Resale value of the machine.", default=0.0, panel=OWNING)
    resale_after: float = option(DURATION, "Time until resale, e.g. 3y.", default=0.0, panel=OWNING)
    discount_rate: float = option(number(), "Annual discount rate, e.g. 0.08.", default=0.0, panel=OWNING)

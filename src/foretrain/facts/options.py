"""What may be chosen about offers: where machines are rented, and which of them are looked for."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.decoding import MONEY, SWITCH, TEXT, option, texts, whole_number
from foretrain.errors import InvalidRequest, UnknownName
from foretrain.panels import MACHINES, MONEY_AND_ENERGY, OUTPUT

SORT_ORDERS = ("price", "price-per-gpu", "cloud", "gpu")


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """Where machines may be rented; everywhere unless limited."""

    cloud: tuple[str, ...] = option(
        texts(), "Only these clouds, e.g. aws,gcp.", default=(), panel=MACHINES, complete="provider"
    )
    region: tuple[str, ...] = option(
        texts(by_comma=False),
        "Only these regions, comma-separated.",
        default=(),
        panel=MACHINES,
        complete="region",
    )


@dataclass(frozen=True, kw_only=True)
class OfferQuery(PlaceOptions):
    """What to look for among offers; everything left out matches everything.

    `spot` compares spot prices and wants only offers that have one. Of each machine only the cheapest region
    is found, unless `all_regions`.
    """

    gpu: str | None = option(
        TEXT, "Device, alias or family, e.g. h100.", metavar="NAME", complete="device", panel=MACHINES
    )
    count: int | None = option(whole_number(1), "Number of devices per machine.", panel=MACHINES)
    spot: bool = option(SWITCH, "Use spot prices.", default=False, panel=MONEY_AND_ENERGY)
    historical: bool = option(
        SWITCH, "Include offers that are no longer available.", default=False, panel=MACHINES
    )
    max_price: float | None = option(MONEY, "Maximum price per hour.", panel=MONEY_AND_ENERGY)
    sort: str = option(
        TEXT,
        "Sort order: price, price-per-gpu, cloud or gpu.",
        default="price",
        metavar="ORDER",
        panel=OUTPUT,
    )
    limit: int | None = option(whole_number(1), "Maximum number of rows.", panel=OUTPUT)
    all_regions: bool = option(
        SWITCH, "List every region, not only the cheapest per machine.", default=False, panel=OUTPUT
    )

    def __post_init__(self) -> None:
        for name, value in (("count", self.count), ("limit", self.limit)):
            if value is not None and value < 1:
                raise InvalidRequest(f"`{name}` must be at least 1, got {value}")
        if self.max_price is not None and not self.max_price > 0:
            raise InvalidRequest(f"`max_price` must be above 0, got {self.max_price:g}")
        if self.sort not in SORT_ORDERS:
            raise UnknownName("order", self.sort, SORT_ORDERS, f"Orders: {', '.join(SORT_ORDERS)}")

"""foretrain: know what a training job will take - time, money, memory, machines - before you run it.

What is exported here is public and stays; all else is free to change. Names are loaded when first used, so
that `import foretrain` stays light.

    device, devices             one device by name; all of them, by name and alias
    Device                      a GPU or CPU and its sheet of facts
    search_offers               the cloud offers an `OfferQuery` asks for
    Offer, OfferQuery           a machine with its hourly price; what to look for
    rent_or_buy                 when does owning a machine pay for itself?
    RentOrBuyRequest            what `rent_or_buy` wants to know
    RentOrBuy                   what it answers
    speedup_per_fold_of_cost    is the faster machine worth its price?
    TimeAndCost                 what a piece of work takes on one offer
    explain                     every fact about a name, with its kind and source
    Explanation                 what `explain` answers
    Estimate, Part, Quantiles   a prediction: a sum of parts with an interval
    ForetrainError              base of all errors a user can cause or mend:
    InvalidRequest              the request makes no sense
    InvalidData                 a file that was handed in is malformed
    UnknownName                 a name nobody knows
    MissingData                 a fact or file is absent
    BackendFailed               something outside foretrain failed
    Infeasible                  the answer "nothing satisfies this"
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrain.errors import (
        BackendFailed,
        ForetrainError,
        Infeasible,
        InvalidData,
        InvalidRequest,
        MissingData,
        UnknownName,
    )
    from foretrain.estimates import Estimate, Part, Quantiles
    from foretrain.facts.devices import Device, device, devices
    from foretrain.facts.explanation import Explanation, explain
    from foretrain.facts.offers import Offer, OfferQuery
    from foretrain.facts.offers import search as search_offers
    from foretrain.planning.rent_or_buy import RentOrBuy, RentOrBuyRequest, rent_or_buy
    from foretrain.planning.speedup import TimeAndCost, speedup_per_fold_of_cost

__version__ = "0.1.0"

__all__ = (
    "BackendFailed",
    "Device",
    "Estimate",
    "Explanation",
    "ForetrainError",
    "Infeasible",
    "InvalidData",
    "InvalidRequest",
    "MissingData",
    "Offer",
    "OfferQuery",
    "Part",
    "Quantiles",
    "RentOrBuy",
    "RentOrBuyRequest",
    "TimeAndCost",
    "UnknownName",
    "__version__",
    "device",
    "devices",
    "explain",
    "rent_or_buy",
    "search_offers",
    "speedup_per_fold_of_cost",
)

_HOMES = {
    "device": "foretrain.facts.devices.device",
    "devices": "foretrain.facts.devices.devices",
    "Device": "foretrain.facts.devices.Device",
    "search_offers": "foretrain.facts.offers.search",
    "Offer": "foretrain.facts.offers.Offer",
    "OfferQuery": "foretrain.facts.offers.OfferQuery",
    "rent_or_buy": "foretrain.planning.rent_or_buy.rent_or_buy",
    "RentOrBuyRequest": "foretrain.planning.rent_or_buy.RentOrBuyRequest",
    "RentOrBuy": "foretrain.planning.rent_or_buy.RentOrBuy",
    "speedup_per_fold_of_cost": "foretrain.planning.speedup.speedup_per_fold_of_cost",
    "TimeAndCost": "foretrain.planning.speedup.TimeAndCost",
    "explain": "foretrain.facts.explanation.explain",
    "Explanation": "foretrain.facts.explanation.Explanation",
    "Estimate": "foretrain.estimates.Estimate",
    "Part": "foretrain.estimates.Part",
    "Quantiles": "foretrain.estimates.Quantiles",
    "ForetrainError": "foretrain.errors.ForetrainError",
    "InvalidRequest": "foretrain.errors.InvalidRequest",
    "InvalidData": "foretrain.errors.InvalidData",
    "UnknownName": "foretrain.errors.UnknownName",
    "MissingData": "foretrain.errors.MissingData",
    "BackendFailed": "foretrain.errors.BackendFailed",
    "Infeasible": "foretrain.errors.Infeasible",
}
"""Where each public name lives. The export test keeps this, `__all__` and the docstring the same."""


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].rpartition(".")
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

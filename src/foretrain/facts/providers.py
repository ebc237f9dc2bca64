"""Providers: who rents devices out, how each names and bills them.

A provider is one folder under `data/providers/`: `provider.toml` and the files of offers it lists. Which
device an accelerator name means depends on the provider and often on the instance (`A100` is 40 GB on an AWS
p4d, either size on a marketplace), so every provider carries its own rules, tried in this order:

    [[left_out]]                  accelerators that are known and knowingly not offered
    name = "tpu-*"                name and instances are shell globs
    reason = "a TPU, no GPU"

    [[accelerators]]
    name = "A100"
    instances = "p4d.*"
    device = "a100-sxm-40gb"      or, where the variant is not known, only: family = "a100"

Billing: clouds round the time of a rental up to their granularity and charge at least a minimum.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from foretrain.errors import InvalidData, InvalidRequest
from foretrain.facts.sheets import FactKind, data_root, read_toml
from foretrain.facts.user_data import read_kept, user_data_dir
from foretrain.registry import Registry
from foretrain.units import HOUR

ROUNDING_DIGITS = 6
"""2412.0000000000005 s is 67 hundredths of an hour, not 68: units are counted to a millionth."""


@dataclass(frozen=True, slots=True)
class BillingTerms:
    """How time is counted: rounded up to whole `granularity_seconds`, and never below `minimum_seconds`.

    A granularity of 0 bills the exact time. `egress_usd_per_gb` is the price of 10⁹ bytes sent to the
    internet, where it is known.
    """

    granularity_seconds: float
    minimum_seconds: float
    kind: FactKind
    source: str
    egress_usd_per_gb: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        for name, value in (
            ("granularity_seconds", self.granularity_seconds),
            ("minimum_seconds", self.minimum_seconds),
        ):
            if not (math.isfinite(value) and value >= 0):
                raise InvalidRequest(f"{name} must be a finite number of at least 0, not {value}")


UNKNOWN_TERMS = BillingTerms(
    0.0, 0.0, FactKind.ASSUMED, "", note="billing terms not known: the exact time is billed"
)
"""For providers with unknown terms, and for owned machines."""


def billed_seconds(seconds: float, terms: BillingTerms) -> float:
    """The time on the bill: ⌈max(t, minimum) / granularity⌉ · granularity; nothing for no time."""
    if not (math.isfinite(seconds) and seconds >= 0):
        raise InvalidRequest(f"cannot bill {seconds} seconds; give a finite time of at least 0")
    if seconds == 0:
        return 0.0
    charged = max(seconds, terms.minimum_seconds)
    if terms.granularity_seconds == 0:
        return charged
    return math.ceil(round(charged / terms.granularity_seconds, ROUNDING_DIGITS)) * terms.granularity_seconds


def billed_usd(seconds: float, usd_per_hour: float, terms: BillingTerms) -> float:
    """What renting for `seconds` costs, in USD: the billed time at the hourly price, unrounded."""
    if not (math.isfinite(usd_per_hour) and usd_per_hour >= 0):
        raise InvalidRequest(f"cannot bill at {usd_per_hour} USD an hour; give a finite price of at least 0")
    return billed_seconds(seconds, terms) / HOUR * usd_per_hour


Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class AcceleratorRule:
    """What an accelerator name means on matching instances: a device, or only a family of them.

    `count` corrects a wrong number of devices in the price file.
    """

    name: str
    instances: str = "*"
    device: str | None = None
    family: str | None = None
    count: int | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if (self.device is None) == (self.family is None):
            raise ValueError(f"the rule for {self.name!r} must name either a device or a family")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An accelerator that is not offered on purpose, and why."""

    name: str
    reason: str
    instances: str = "*"


@dataclass(frozen=True, slots=True)
class OfferFile:
    """A file of offers and how old they are.

    `as_of` is an ISO date as precise as is known (`2026-08-22`, `2019`); `as_of_kind` says whether it was
    stated (`spec`) or inferred (`assumed`). Historical offers can no longer be rented.
    """

    file: str
    as_of: str
    source: str
    as_of_kind: str = FactKind.SPEC
    historical: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class BillingRule:
    """Billing terms for the instances that match, of today or of the past."""

    terms: BillingTerms
    instances: str = "*"
    historical: bool = False


@dataclass(frozen=True, slots=True)
class HostMachine:
    """The machine that carries `count` of an accelerator, on clouds that price the two separately.

    `attached` accelerators go into general machines, so their name becomes part of the instance's.
    """

    accelerator: str
    count: int
    machine: str
    vcpus: float
    memory_gib: float
    attached: bool = False

    @property
    def instance(self) -> str:
        """The name of machine and accelerators together."""
        return f"{self.machine}+{self.count}x{self.accelerator}" if self.attached else self.machine


@dataclass(frozen=True, slots=True)
class Provider:
    """One cloud, marketplace or owner of machines."""

    id: str
    name: str
    offer_files: tuple[OfferFile, ...]
    billing_rules: tuple[BillingRule, ...]
    accelerators: tuple[AcceleratorRule, ...]
    left_out: tuple[LeftOut, ...]
    machines: tuple[HostMachine, ...]
    machine_prices: str | None
    folder: Traversable

    def identify(self, accelerator: str, instance: str) -> AcceleratorRule | LeftOut | None:
        """The first rule that matches, or None for an accelerator without a rule."""
        rules: Iterable[LeftOut | AcceleratorRule] = (*self.left_out, *self.accelerators)
        for rule in rules:
            if fnmatchcase(accelerator, rule.name) and fnmatchcase(instance, rule.instances):
                return rule
        return None

    def billing_terms(self, instance: str, historical: bool = False) -> BillingTerms:
        """How an instance is billed; `UNKNOWN_TERMS` (kind `assumed`) where that is not known."""
        fitting = [rule for rule in self.billing_rules if fnmatchcase(instance, rule.instances)]
        of_the_past = [rule for rule in fitting if rule.historical]
        if historical and of_the_past:
            return of_the_past[0].terms
        return next((rule.terms for rule in fitting if not rule.historical), UNKNOWN_TERMS)


def providers() -> Registry[Provider]:
    """All providers, by id; those of the user's own offers too."""
    kept = read_kept(user_offers_file(), _listed_providers)
    return _providers(() if kept is None else kept)


def user_offers_file() -> Path:
    """Where imported prices and the user's own offers are kept."""
    return user_data_dir() / "offers.csv"


@lru_cache(maxsize=4)
def _providers(kept: tuple[str, ...]) -> Registry[Provider]:
    shipped = shipped_providers()
    known = {provider.id for provider in shipped}
    own = (_own_provider(name) for name in kept if name not in known)
    return Registry(
        "cloud",
        sorted((*shipped, *own), key=lambda provider: provider.id),
        name=lambda provider: provider.id,
        hint="List them: foretrain offers",
    )


def _listed_providers(file: Path) -> tuple[str, ...]:
    """The providers in a file of the user's offers; what is wrong with it is found when offers are read."""
    with file.open(encoding="utf-8", errors="replace", newline="") as lines:
        rows = csv.reader(lines)
        next(rows, None)
        return tuple(dict.fromkeys(row[0] for row in rows if row and row[0]))


def _own_provider(name: str) -> Provider:
    """A provider that only the user's offers name: the exact time is billed."""
    return Provider(name, f"{name} (yours)", (), (), (), (), (), None, user_data_dir())


@cache
def shipped_providers() -> tuple[Provider, ...]:
    """The providers that come with foretrain."""
    return tuple(sorted(_read_providers(), key=lambda provider: provider.id))


def _read_providers() -> Iterator[Provider]:
    for folder in (data_root() / "providers").iterdir():
        file = folder / "provider.toml"
        if file.is_file():
            yield _provider(folder, read_toml(file), f"providers/{folder.name}/provider.toml")


def _provider(folder: Traversable, entry: dict[str, Any], file: str) -> Provider:
    if entry.get("id") != folder.name or "name" not in entry:
        raise InvalidData(file, f"must state a name and the id {folder.name!r}, that of its folder")
    hosts = entry.get("hosts", {})
    return Provider(
        id=entry["id"],
        name=entry["name"],
        offer_files=_entries(OfferFile, entry.get("offers", []), file),
        billing_rules=tuple(_billing_rule(block, file) for block in entry.get("billing", [])),
        accelerators=_entries(AcceleratorRule, entry.get("accelerators", []), file),
        left_out=_entries(LeftOut, entry.get("left_out", []), file),
        machines=_entries(HostMachine, hosts.get("machines", []), file),
        machine_prices=hosts.get("file"),
        folder=folder,
    )


def _billing_rule(block: dict[str, Any], file: str) -> BillingRule:
    terms = {key: value for key, value in block.items() if key not in {"instances", "historical"}}
    try:
        terms["kind"] = FactKind(terms["kind"])
    except (KeyError, ValueError) as error:
        kinds = ", ".join(FactKind)
        raise InvalidData(file, f"a [[billing]] block needs a kind ({kinds}): {error}") from error
    (built,) = _entries(BillingTerms, [{"minimum_seconds": 0, **terms}], file)
    return BillingRule(built, block.get("instances", "*"), block.get("historical", False))


def _entries(kind: type[Entry], blocks: list[dict[str, Any]], file: str) -> tuple[Entry, ...]:
    try:
        return tuple(kind(**block) for block in blocks)
    except (TypeError, ValueError) as error:
        raise InvalidData(file, str(error)) from error

"""Offers: what a machine with devices costs per hour, where, and since when; and the search among them.

Shipped offers stand in `data/providers/<cloud>/`. Prices a user imported (see `price_files`) replace the
shipped current offers of a cloud unless those are newer. Offers that a user added (see `own_facts`) stand in
place of the same machine's. Both are in one file, replaced in one step by one writer at a time
(`change_kept`): a reader sees the old prices or the new ones, and two writers lose none of each other's.
Historical offers, of machines that can no longer be rented at that price, are found only when asked for.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

from foretrain.errors import InvalidData, InvalidRequest, UnknownName
from foretrain.facts import devices
from foretrain.facts.options import OfferQuery
from foretrain.facts.providers import providers, shipped_providers, user_offers_file
from foretrain.facts.user_data import read_kept, write_atomically
from foretrain.registry import normalise
from foretrain.units import GIB

OFFER_COLUMNS = (
    "instance", "device", "family", "count", "vcpus", "memory_gib", "region",
    "usd_per_hour", "spot_usd_per_hour",
)  # fmt: skip
OWN_SOURCE = "user-offers"
"""The source of offers that the user added."""
USER_COLUMNS = ("provider", "as_of", "source", *OFFER_COLUMNS)


@dataclass(frozen=True, slots=True)
class Offer:
    """One machine type of one provider in one region, with its price.

    `device` is None where the provider does not say which variant of the `family` it rents out. `as_of` is an
    ISO date as precise as is known. `vcpus` and `memory_bytes` are the machine's, None where not stated.
    """

    provider: str
    instance: str
    device: str | None
    family: str
    count: int
    vcpus: float | None
    memory_bytes: float | None
    region: str
    usd_per_hour: float
    spot_usd_per_hour: float | None
    as_of: str
    historical: bool
    source: str

    @property
    def usd_per_device_hour(self) -> float:
        """The on-demand price of one of its devices for an hour."""
        return self.usd_per_hour / self.count

    @property
    def place(self) -> str:
        """The region as people read it: some providers' names begin with a comma."""
        return self.region.strip(" ,")

    def price(self, spot: bool = False) -> float:
        """USD per hour, on demand or spot; an offer without a spot price raises `InvalidRequest`."""
        if not spot:
            return self.usd_per_hour
        if self.spot_usd_per_hour is None:
            raise InvalidRequest(f"{self.provider}:{self.instance} has no spot price in {self.region}")
        return self.spot_usd_per_hour


_ORDERS: dict[str, Callable[[Offer, bool], tuple[object, ...]]] = {
    "price": lambda offer, spot: (offer.price(spot),),
    "price-per-gpu": lambda offer, spot: (offer.price(spot) / offer.count,),
    "cloud": lambda offer, spot: (offer.provider, offer.price(spot)),
    "gpu": lambda offer, spot: (offer.family, offer.device or "", offer.price(spot)),
}


def search(query: OfferQuery) -> tuple[Offer, ...]:
    """The offers a query asks for, in its order. Unknown GPUs, clouds and regions raise `UnknownName`."""
    known, filters = all_offers(), _filters(query)
    selected = [offer for offer in known if all(each.keeps(offer) for each in filters)]
    if not query.all_regions:
        selected = _cheapest_regions(selected, query.spot)
    order = _ORDERS[query.sort]
    selected.sort(key=lambda offer: (*order(offer, query.spot), offer.provider, offer.instance, offer.region))
    return tuple(selected[: query.limit])


def offers_named(name: str) -> tuple[Offer, ...]:
    """The offers of one machine, `provider:instance`, cheapest region first; past ones if none is current.

    What is not of that form raises `InvalidRequest`, an unknown provider or instance `UnknownName`.
    """
    cloud, colon, instance = name.partition(":")
    if not (cloud and colon and instance):
        raise InvalidRequest(f"{name!r} is not provider:instance, as in aws:p4d.24xlarge")
    provider = providers()[cloud].id
    of_provider = [offer for offer in all_offers() if offer.provider == provider]
    named = [offer for offer in of_provider if normalise(offer.instance) == normalise(instance)]
    if not named:
        devices.refuse_unmodelled(instance)
        instances = {offer.instance for offer in of_provider}
        hint = f"List the offers of cloud {provider}: foretrain offers"
        raise UnknownName(f"instance of {provider}", instance, instances, hint)
    current = [offer for offer in named if not offer.historical]
    return tuple(sorted(current or named, key=lambda offer: (offer.usd_per_hour, offer.region)))


def offer_named(name: str) -> Offer:
    """The offer of `provider:instance` in its cheapest region."""
    return offers_named(name)[0]


def all_offers() -> tuple[Offer, ...]:
    """Every offer known, past and present; read once, and again after an import."""
    return read_kept(user_offers_file(), _read_merged) or shipped_offers()


@cache
def shipped_offers() -> tuple[Offer, ...]:
    """The offers that come with foretrain."""
    return tuple(_read_shipped())


def kept_offers() -> tuple[Offer, ...]:
    """The offers that the user imported or added; a malformed file of them raises `InvalidData`."""
    return read_kept(user_offers_file(), _read_offers) or ()


def own_offers() -> tuple[Offer, ...]:
    """Those that the user added."""
    return tuple(offer for offer in kept_offers() if offer.source == OWN_SOURCE)


def _read_offers(file: Path) -> tuple[Offer, ...]:
    with file.open(encoding="utf-8", newline="") as lines:
        return tuple(_read_imported(lines, file.name))


def offer_fields(offer: Offer) -> tuple[str, ...]:
    """An offer as the fields of its row in a file of offers."""
    return (
        offer.instance,
        offer.device or "",
        offer.family,
        str(offer.count),
        _number_text(offer.vcpus),
        _number_text(None if offer.memory_bytes is None else offer.memory_bytes / GIB),
        offer.region,
        _number_text(offer.usd_per_hour),
        _number_text(offer.spot_usd_per_hour),
    )


def change_kept(change: Callable[[tuple[Offer, ...]], Iterable[Offer] | None]) -> None:
    """Replace the kept offers by what `change` makes of them; None leaves the file as it is.

    In one step, so that a reader sees the old prices or the new ones, never a mixture; under a lock, so that
    two writers do not lose each other's offers.
    """
    file = user_offers_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(file.with_suffix(".lock")):
            after = change(kept_offers())
            if after is not None:
                _replace_file(file, sorted(after, key=offer_place))
    except OSError as error:
        raise InvalidRequest(
            f"cannot write {str(file)!r}: {error.strerror}; set FORETRAIN_HOME to a directory of yours"
        ) from error


def offer_place(offer: Offer) -> tuple[str, str, str]:
    """What an offer is identified by: provider, instance and region."""
    return offer.provider, offer.instance, offer.region


def _replace_file(file: Path, offers: Iterable[Offer]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(USER_COLUMNS)
    writer.writerows((offer.provider, offer.as_of, offer.source, *offer_fields(offer)) for offer in offers)
    write_atomically(file, text.getvalue())


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    import fcntl  # not on Windows, where offers can be read but not changed

    with file.open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def latest_as_of(offers: Iterable[Offer]) -> dict[str, str]:
    """The date of each provider's current offers."""
    dates: dict[str, str] = {}
    for offer in offers:
        if not offer.historical:
            dates[offer.provider] = max(offer.as_of, dates.get(offer.provider, ""))
    return dates


def is_older(as_of: str, than: str) -> bool:
    """Whether a date is before another, as far as both are precise: 2026-08 is not before 2026-08-22."""
    precision = min(len(as_of), len(than))
    return as_of[:precision] < than[:precision]


def _read_merged(file: Path) -> tuple[Offer, ...]:
    """Shipped offers, imported ones in place of their clouds', own ones in place of the same machine's."""
    kept, shipped = _read_offers(file), shipped_offers()
    dates = latest_as_of(shipped)
    imported = [
        offer
        for offer in kept
        if offer.source != OWN_SOURCE and not is_older(offer.as_of, dates.get(offer.provider, ""))
    ]
    own = [offer for offer in kept if offer.source == OWN_SOURCE]
    clouds = {offer.provider for offer in imported}
    machines = {(offer.provider, offer.instance, offer.region) for offer in own}
    known = (*(each for each in shipped if each.historical or each.provider not in clouds), *imported)
    others = (
        each
        for each in known
        if each.historical or (each.provider, each.instance, each.region) not in machines
    )
    return tuple(sorted((*others, *own), key=lambda offer: (offer.provider, offer.historical)))


def contradiction(query: OfferQuery, gpus: Sequence[str] = ()) -> str:
    """Which filters of a query together leave no offer, and what there is without each of them.

    The fewest filters that exclude every offer are named; nothing if some offer passes. Any of `gpus` will
    do, in place of the one GPU of the query.

        no offer has both `gpu` rtx4090 and `cloud` aws; without `cloud`: runpod, vast; without `gpu`: l4, t4
    """
    known, filters = all_offers(), _filters(query, gpus)
    passes = [[each.keeps(offer) for offer in known] for each in filters]
    for size in range(1, len(filters) + 1):
        for chosen in combinations(range(len(filters)), size):
            if not any(map(all, zip(*(passes[place] for place in chosen), strict=True))):
                return _no_offer(known, [filters[place] for place in chosen])
    return ""


@dataclass(frozen=True, slots=True)
class _Filter:
    """A filter of a query as it is written, which offers it keeps, and what others would pass as it."""

    field: str
    value: str
    keeps: Callable[[Offer], bool]
    others: Callable[[Sequence[Offer]], str]

    @property
    def text(self) -> str:
        return f"`{self.field}` {self.value}".rstrip()


def _no_offer(known: Sequence[Offer], filters: Sequence[_Filter]) -> str:
    """The sentence about filters that contradict each other."""
    named = " and ".join(each.text for each in filters)
    sentence = f"no offer has {'both ' if len(filters) == 2 else ''}{named}"
    without = []
    for dropped in filters:
        rest = [each for each in filters if each is not dropped]
        offers = [offer for offer in known if all(each.keeps(offer) for each in rest)]
        if offers:
            without.append(f"without `{dropped.field}`: {dropped.others(offers)}")
    return "; ".join((sentence, *without))


def _filters(query: OfferQuery, gpus: Sequence[str] = ()) -> list[_Filter]:
    """The filters of a query; unknown GPUs, clouds and regions raise `UnknownName`."""
    known, spot, most = all_offers(), query.spot, query.max_price
    clouds = {providers()[cloud].id for cloud in query.cloud}
    wanted = tuple(gpus) or ((query.gpu,) if query.gpu is not None else ())
    of_gpus = [_gpu_filter(gpu, known) for gpu in wanted]
    regions = _known_regions(query.region, known)
    in_clouds = [offer for offer in known if not clouds or offer.provider in clouds]
    filters = []
    if not query.historical:
        filters.append(_Filter("historical", "no", lambda offer: not offer.historical, _of("as_of")))
    if clouds:
        filters.append(
            _Filter("cloud", ",".join(query.cloud), lambda offer: offer.provider in clouds, _of("provider"))
        )
    if wanted:
        filters.append(
            _Filter(
                "gpu", ",".join(wanted), lambda offer: any(keeps(offer) for keeps in of_gpus), _of("family")
            )
        )
    if regions:
        filters.append(
            _Filter(
                "region",
                ",".join(query.region),
                lambda offer: normalise(offer.region) in regions,
                _of("place"),
            )
        )
        elsewhere = regions - {normalise(offer.region) for offer in in_clouds}
        if elsewhere:
            theirs = {offer.provider for offer in known if normalise(offer.region) in elsewhere}
            named = [region for region in query.region if normalise(region) in elsewhere]
            raise InvalidRequest(
                f"`region` {','.join(named)} is of {' and '.join(sorted(theirs))}, not of `cloud` "
                f"{','.join(query.cloud)}, whose regions are such as {_of('place')(in_clouds)}"
            )
    if query.count is not None:
        filters.append(
            _Filter("count", str(query.count), lambda offer: offer.count == query.count, _of("count"))
        )
    if spot:
        filters.append(
            _Filter("spot", "", lambda offer: offer.spot_usd_per_hour is not None, _of("provider"))
        )
    if most is not None:
        filters.append(
            _Filter(
                "max_price",
                f"{most:g} USD",
                lambda offer: not (spot and offer.spot_usd_per_hour is None) and offer.price(spot) <= most,
                lambda offers: f"{_lowest(offers, spot):g} USD an hour and more",
            )
        )
    return filters


def _of(attribute: str) -> Callable[[Sequence[Offer]], str]:
    """The three most frequent values of an attribute among offers."""

    def listed(offers: Sequence[Offer]) -> str:
        counted = Counter(str(getattr(offer, attribute)) for offer in offers)
        return ", ".join(value for value, _ in counted.most_common(3)) + (" ..." if len(counted) > 3 else "")

    return listed


def _lowest(offers: Iterable[Offer], spot: bool) -> float:
    """The lowest price of an hour."""
    return min(offer.price(spot and offer.spot_usd_per_hour is not None) for offer in offers)


def _gpu_filter(gpu: str | None, offers: Sequence[Offer]) -> Callable[[Offer], bool]:
    if gpu is None:
        return lambda _: True
    wanted = normalise(gpu)
    families = {normalise(offer.family): offer.family for offer in offers}
    if wanted in families:
        return lambda offer: offer.family == families[wanted]
    offered = {offer.device for offer in offers if offer.device is not None}
    if wanted in offered:
        return lambda offer: offer.device == wanted
    known = devices.devices()
    if gpu not in known and not devices.family(gpu):
        devices.refuse_unmodelled(gpu)
        names = {*families.values(), *offered, *known}
        raise UnknownName("GPU", gpu, names, "List them: foretrain devices")
    meant = {device.id for device in devices.matching(gpu)}
    return lambda offer: offer.device in meant


def _known_regions(regions: Iterable[str], offers: Iterable[Offer]) -> set[str]:
    wanted = {normalise(region): region for region in regions}
    if not wanted:
        return set()
    known = {normalise(offer.region): offer.region for offer in offers}
    for key, region in wanted.items():
        if key not in known:
            raise UnknownName("region", region, known.values(), "Leave the region out to see all of them")
    return set(wanted)


def _cheapest_regions(offers: Iterable[Offer], spot: bool) -> list[Offer]:
    cheapest: dict[tuple[str, str, bool], Offer] = {}
    for offer in offers:
        key = (offer.provider, offer.instance, offer.historical)
        if key not in cheapest or (offer.price(spot), offer.region) < (
            cheapest[key].price(spot),
            cheapest[key].region,
        ):
            cheapest[key] = offer
    return list(cheapest.values())


def _read_shipped() -> Iterator[Offer]:
    for provider in shipped_providers():
        for listed in provider.offer_files:
            name = f"providers/{provider.id}/{listed.file}"
            text = (provider.folder / listed.file).read_text(encoding="utf-8")
            given = (listed.as_of, listed.historical, listed.source)
            for number, fields in enumerate(_rows(text.splitlines(), OFFER_COLUMNS, name), start=2):
                yield offer_of(name, number, provider.id, fields, *given)


def _read_imported(lines: Iterable[str], file: str) -> Iterator[Offer]:
    for number, fields in enumerate(_rows(lines, USER_COLUMNS, file), start=2):
        if len(fields) != len(USER_COLUMNS):
            raise InvalidData(file, f"{len(fields)} fields where {len(USER_COLUMNS)} are due", row=number)
        provider, as_of, source, *rest = fields
        yield offer_of(file, number, provider, rest, as_of, False, source)


def _rows(lines: Iterable[str], columns: tuple[str, ...], file: str) -> Iterator[list[str]]:
    """The rows of a CSV file after its header, which must be these columns."""
    rows = csv.reader(lines)
    if next(rows, None) != list(columns):
        raise InvalidData(file, f"the first row must be {','.join(columns)}", row=1)
    return rows


def offer_of(
    file: str, row: int, provider: str, fields: Sequence[str], as_of: str, historical: bool, source: str
) -> Offer:
    """The offer in the fields of a row; what cannot be one raises `InvalidData` with the row."""
    try:
        instance, device, family, count, vcpus, memory_gib, region, usd, spot = fields
        offer = Offer(
            provider,
            instance,
            device or None,
            family,
            int(count),
            float(vcpus) if vcpus else None,
            float(memory_gib) * GIB if memory_gib else None,
            region,
            float(usd),
            float(spot) if spot else None,
            as_of,
            historical,
            source,
        )
    except ValueError as error:
        raise InvalidData(file, f"no offer: {error}", row=row) from error
    if offer.count < 1 or not 0 < offer.usd_per_hour < math.inf:
        raise InvalidData(file, f"{count} devices for {usd} USD an hour cannot be", row=row)
    return offer


def _number_text(value: float | None) -> str:
    """A number in a file: to five decimals, as price catalogues state them."""
    return "" if value is None else f"{round(value, 5):.10g}"

"""Reading and searching the facts, in a process that has already started."""

from __future__ import annotations

from benchmarks.timing import benchmark
from foretrain.facts.devices import devices
from foretrain.facts.offers import search, shipped_offers
from foretrain.facts.options import OfferQuery


@benchmark("read all devices", target_seconds=0.15, prepare=devices.cache_clear)
def read_devices() -> None:
    """Every sheet of every device."""
    devices()


@benchmark("read all offers", target_seconds=0.06, prepare=shipped_offers.cache_clear)
def read_offers() -> None:
    """Every price of every provider."""
    shipped_offers()


@benchmark("search offers", target_seconds=0.02)
def search_offers() -> None:
    """One filter among all offers."""
    search(OfferQuery(gpu="a100", count=8))

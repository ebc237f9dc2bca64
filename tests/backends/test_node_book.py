"""Intervals of nodes and what they cost, by hand: a node costs 1 USD per second."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrain.backends.executors._base import Host
from foretrain.backends.node_book import HostMap, NodeBook, billed_usd, interval_of
from foretrain.scheduling.problem import NodeType, elastic

NODE = NodeType(name="pair", gpu="a100", gpus=2, usd_per_hour=3600)
FLEET = elastic([NODE], 2)


def test_jobs_share_the_price_of_a_node_and_none_pays_while_it_is_empty() -> None:
    book = NodeBook(FLEET)
    book.hold(0, "pair", (("a", 1),), 0.0)
    book.hold(0, "pair", (("a", 1), ("b", 1)), 10.0)
    book.drop("a", 20.0)
    book.drop("b", 26.0)
    book.switch_off(0, 27.0)
    assert book.ledger.usd_by_job == {"a": 10 + 5, "b": 5 + 6}
    assert book.ledger.execution_usd == 27
    assert [each.on_since for each in book.intervals] == [0.0] * 4


def test_the_bill_of_a_slot_and_the_units_of_the_provider() -> None:
    fleet = elastic([replace(NODE, billing_seconds=60)], 2)
    book = NodeBook(fleet)
    book.hold(0, "pair", (("a", 1),), 0.0)
    book.hold(1, "pair", (("b", 1),), 5.0)
    book.switch_off(0, 12.0)
    assert billed_usd(book.intervals, fleet, 0.0, 10.0) == 10 + 5
    assert billed_usd(book.intervals, fleet, 10.0, 20.0) == 2 + 48 + 10  # node 0 is paid for a minute


def test_a_book_is_restored_from_its_rows() -> None:
    book = NodeBook(FLEET)
    rows = [each.row() for each in book.hold(0, "pair", (("a", 1),), 0.0)]
    rows = [each.row() for each in book.hold(0, "pair", (("a", 1), ("b", 1)), 10.0)]
    restored = NodeBook(FLEET, map(interval_of, rows))
    assert restored.nodes == book.nodes
    assert restored.ledger.execution_usd == book.ledger.execution_usd == 10
    assert restored.spent(14.0) == pytest.approx({"a": 12, "b": 2})


def test_a_node_keeps_its_host_and_takes_a_spare_one_when_it_fails() -> None:
    hosts = HostMap(FLEET, {})
    x, y, z = (Host(name, 2) for name in "xyz")
    assert hosts.update([x, y]) == frozenset()
    assert hosts.names == {0: "x", 1: "y"}
    assert hosts.update([x, replace(y, is_alive=False)]) == frozenset({1})
    assert hosts.update([x, replace(y, is_alive=False), z]) == frozenset()
    assert hosts.names == {0: "x", 1: "z"}
    assert HostMap(FLEET, hosts.stored()).names == hosts.names


def test_a_host_with_too_few_gpus_is_no_node() -> None:
    hosts = HostMap(FLEET, {})
    assert hosts.update([Host("small", 1), Host("large", 8)]) == frozenset({1})
    assert hosts.names == {0: "large"}

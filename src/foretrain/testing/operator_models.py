"""What every operator model must hold to: never negative, never below the roofline, never faster for more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from foretrain.facts.devices import Device, device
from foretrain.facts.sheets import Sheet
from foretrain.prediction.operators.pricing import (
    Floats,
    OperatorModel,
    WorkTable,
    price,
    roofline_seconds,
    table,
)
from foretrain.testing.works import Row, empty_work, growing_works
from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import Kind, Op

_ROUNDING = 1e-9
_SPEED_AND_SIZE = ("memory_bytes_per_second", "sm_count", "l2_bytes", "boost_clock_hertz", "tdp_watts")


class OperatorModelSuite:
    """Inherit it in a test class, and name the model, the devices and types of number it is meant for.

    A model that follows real libraries in what they do for odd sizes may price a larger work lower; it has to
    say by how much: `slack` is the largest fall, as a share, and `exceptions` the share of the steps from one
    work to a larger one that fall at all. `device_slack`: how much slower it may price a faster device.
    """

    model: ClassVar[OperatorModel]
    devices: ClassVar[Sequence[str]] = ("p100-pcie", "t4", "v100-sxm2-16gb", "a100-sxm-80gb", "h100-sxm")
    dtypes: ClassVar[Sequence[str]] = ("float32", "float16")
    slack: ClassVar[float] = 0.0
    exceptions: ClassVar[float] = 0.0
    device_slack: ClassVar[float] = 0.0

    def floor(self, works: WorkTable, on: Device) -> Floats:
        """The least time of each work; a model of algorithms that save FLOP has a lower one."""
        return roofline_seconds(works, on)

    def kinds(self) -> frozenset[Kind]:
        """The kinds to try; all of the model's, unless it knows some on some devices only."""
        return self.model.kinds - {Kind.VIEW, Kind.UNKNOWN}

    def rows(self) -> list[Row]:
        """Rows of growing works of every kind."""
        return [
            row
            for kind in sorted(self.kinds())
            for dtype in self.dtypes
            for row in growing_works(kind, dtype)
        ]

    def priced(self, rows: Sequence[Row], on: Device) -> Iterator[tuple[Row, Floats]]:
        """Rows with their seconds on a device, all priced at once."""
        works = table([work for row in rows for work in row])
        ends = np.cumsum([len(row) for row in rows])
        yield from zip(rows, np.split(self.model.seconds(works, on), ends[:-1]), strict=True)

    def test_times_are_finite_and_not_negative(self) -> None:
        """Down to works of a single element."""
        for on in map(device, self.devices):
            for row, seconds in self.priced(self.rows(), on):
                assert np.isfinite(seconds).all(), f"{row[0].kind} on {on.id}: {seconds}"
                assert (seconds >= 0).all(), f"{row[0].kind} on {on.id}: {seconds}"

    def test_an_empty_batch_takes_no_time(self) -> None:
        """Works with nothing to do, which PyTorch does not even launch."""
        for on in map(device, self.devices):
            works = [empty_work(kind, dtype) for kind in sorted(self.kinds()) for dtype in self.dtypes]
            ops = [Op(work, call, "empty", Phase.FORWARD, "", False) for call, work in enumerate(works)]
            assert not price(ops, on, [self.model]).seconds.any()

    def test_nothing_beats_the_roofline(self) -> None:
        """No time is below what the device's figures allow."""
        for on in map(device, self.devices):
            for row, seconds in self.priced(self.rows(), on):
                share = (self.floor(table(row), on) / seconds).max()
                assert share <= 1 + _ROUNDING, f"{row[0].kind} on {on.id}: {share:.4f} of the device's limits"

    def test_more_work_is_never_faster(self) -> None:
        """Along a row, times never fall (by more than `slack`, in more than `exceptions` of all steps)."""
        falls, steps = 0, 0
        for on in map(device, self.devices):
            for row, seconds in self.priced(self.rows(), on):
                change = seconds[1:] / seconds[:-1]
                worst = int(change.argmin())
                assert change[worst] >= 1 - self.slack - _ROUNDING, (
                    f"{row[0].kind} on {on.id}: {dict(row[worst + 1].dims)} takes {change[worst]:.3f} of the "
                    f"time of {dict(row[worst].dims)}"
                )
                falls += int((change < 1 - _ROUNDING).sum())
                steps += len(change)
        assert falls <= self.exceptions * steps, f"{falls} of {steps} steps to a larger work are faster"

    def test_a_faster_device_is_never_slower(self) -> None:
        """Neither with all figures doubled nor with the bandwidth alone."""
        rows = self.rows()
        for on in map(device, self.devices):
            now = list(self.priced(rows, on))
            for better in (doubled(on), with_twice_the_bandwidth(on)):
                for (row, seconds), (_, then) in zip(now, self.priced(rows, better), strict=True):
                    slower = (then / seconds).max() - 1
                    assert slower <= self.device_slack + _ROUNDING, f"{row[0].kind} on {on.id}: {slower:.1%}"

    def test_works_are_priced_alone_as_among_others(self) -> None:
        """An empty list of works is priced, too."""
        on, row = device(self.devices[0]), self.rows()[0]
        assert self.model.seconds(table(()), on).shape == (0,)
        together = self.model.seconds(table(row), on)
        assert np.allclose(self.model.seconds(table(row[:1]), on), together[:1], rtol=_ROUNDING)

    def test_confidence_is_in_order_and_names_its_source(self) -> None:
        """For every kind on every device."""
        for on in map(device, self.devices):
            for kind in self.kinds():
                trust = self.model.confidence(kind, on)
                assert 0 < trust.p10 <= trust.p90
                assert trust.source


def doubled(device: Device) -> Device:
    """The device with every figure of its speed and size doubled."""
    return _scale_figures(device, lambda name: name in _SPEED_AND_SIZE or name.endswith("flop_per_second"))


def with_twice_the_bandwidth(device: Device) -> Device:
    """The device with memory twice as fast, and nothing else."""
    return _scale_figures(device, lambda name: name == "memory_bytes_per_second")


def _scale_figures(device: Device, is_meant: Callable[[str], bool]) -> Device:
    facts = tuple(
        replace(fact, value=2 * fact.value)
        if is_meant(fact.quantity) and not isinstance(fact.value, str)
        else fact
        for fact in device.sheet
    )
    return replace(device, sheet=Sheet(device.sheet.subject, facts))

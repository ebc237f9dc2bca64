"""Conformance suite of operator models: never negative, never below the roofline, monotonic in size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from foretrain.facts.devices import Device, device
from foretrain.prediction.operators._base import OperatorModel
from foretrain.prediction.operators.listing import Floats, WorkTable, table
from foretrain.prediction.operators.pricing import price, roofline_seconds
from foretrain.testing.faster_devices import doubled, with_twice_the_bandwidth
from foretrain.testing.works import Row, empty_work, growing_works
from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import Kind, Op

_ROUNDING = 1e-9


class OperatorModelSuite:
    """Inherit this in a test class; set the model, and the devices and number types it supports.

    A model of libraries that treat odd sizes differently may predict a larger work to be faster. `slack` is
    the largest decrease allowed, as a share, and `exceptions` the share of steps to a larger work that may
    decrease. `device_slack` is how much slower it may predict a faster device.
    """

    model: ClassVar[OperatorModel]
    devices: ClassVar[Sequence[str]] = ("p100-pcie", "t4", "v100-sxm2-16gb", "a100-sxm-80gb", "h100-sxm")
    dtypes: ClassVar[Sequence[str]] = ("float32", "float16")
    slack: ClassVar[float] = 0.0
    exceptions: ClassVar[float] = 0.0
    device_slack: ClassVar[float] = 0.0

    def floor(self, works: WorkTable, on: Device) -> Floats:
        """Lower bound of the time of each work; override it for algorithms that save FLOP."""
        return roofline_seconds(works, on)

    def kinds(self) -> frozenset[Kind]:
        """The kinds to test: by default all of the model."""
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
        """Rows with their seconds on a device, priced in one call."""
        works = table([work for row in rows for work in row])
        ends = np.cumsum([len(row) for row in rows])
        yield from zip(rows, np.split(self.model.seconds(works, on), ends[:-1]), strict=True)

    def test_times_are_finite_and_not_negative(self) -> None:
        """Including works of a single element."""
        for on in map(device, self.devices):
            for row, seconds in self.priced(self.rows(), on):
                assert np.isfinite(seconds).all(), f"{row[0].kind} on {on.id}: {seconds}"
                assert (seconds >= 0).all(), f"{row[0].kind} on {on.id}: {seconds}"

    def test_an_empty_batch_takes_no_time(self) -> None:
        """PyTorch launches no kernel for empty tensors."""
        for on in map(device, self.devices):
            works = [empty_work(kind, dtype) for kind in sorted(self.kinds()) for dtype in self.dtypes]
            ops = [Op(work, call, "empty", Phase.FORWARD, "", False) for call, work in enumerate(works)]
            assert not price(ops, on, [self.model]).seconds.any()

    def test_nothing_beats_the_roofline(self) -> None:
        """No time is below the bound from the figures of the device."""
        for on in map(device, self.devices):
            for row, seconds in self.priced(self.rows(), on):
                share = (self.floor(table(row), on) / seconds).max()
                assert share <= 1 + _ROUNDING, f"{row[0].kind} on {on.id}: {share:.4f} of the device's limits"

    def test_more_work_is_never_faster(self) -> None:
        """Times do not decrease along a row (beyond `slack` and `exceptions`)."""
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
        """With all figures doubled, and with twice the bandwidth only."""
        rows = self.rows()
        for on in map(device, self.devices):
            now = list(self.priced(rows, on))
            for better in (doubled(on), with_twice_the_bandwidth(on)):
                for (row, seconds), (_, then) in zip(now, self.priced(rows, better), strict=True):
                    slower = (then / seconds).max() - 1
                    assert slower <= self.device_slack + _ROUNDING, f"{row[0].kind} on {on.id}: {slower:.1%}"

    def test_the_price_of_a_work_does_not_depend_on_others(self) -> None:
        """An empty list of works is priced, too."""
        on, row = device(self.devices[0]), self.rows()[0]
        assert self.model.seconds(table(()), on).shape == (0,)
        seconds = self.model.seconds(table(row), on)
        assert np.allclose(self.model.seconds(table(row[:1]), on), seconds[:1], rtol=_ROUNDING)

    def test_confidence_is_in_order_and_names_its_source(self) -> None:
        """For every kind on every device."""
        for on in map(device, self.devices):
            for kind in self.kinds():
                confidence = self.model.confidence(kind, on)
                assert 0 < confidence.p10 <= confidence.p90
                assert confidence.source

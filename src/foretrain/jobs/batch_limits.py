"""Which batch sizes a plan may choose: what was asked for, and the sizes that leaves to compare."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count, takewhile

from foretrain.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Which batches may be chosen: one of each device and step, one of all, or any up to `most` of all.

    `micro_batches` are equal parts of what each device trains in a step, as `predict` has them.
    """

    batch: int | None = None
    micro_batches: int | None = None
    global_batch: int | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "micro_batches", "global_batch", "most"):
            value = getattr(self, name)
            if value is not None and value < 1:
                said = "the largest global batch" if name == "most" else name.replace("_", " ")
                raise InvalidRequest(f"{said} must be at least 1, got {value}")
        if self.batch is not None and self.global_batch is not None:
            raise InvalidRequest("give --batch (of each device) or --global-batch, not both")
        if self.global_batch is not None and self.global_batch > self.largest:
            raise InvalidRequest(
                f"a global batch of {self.global_batch} is above the largest allowed, {self.most}: give one "
                "of --global-batch and --max-global-batch"
            )
        for whose, size in (("each device", self.batch), ("all devices", self.global_batch)):
            if size is not None and size % (self.micro_batches or 1):
                raise InvalidRequest(
                    f"{size} samples of {whose} do not split into {self.micro_batches} equal micro-batches"
                )

    @property
    def at_once(self) -> int | None:
        """What each device trains at once, where its batch is given."""
        return None if self.batch is None else self.batch // (self.micro_batches or 1)

    @property
    def is_open(self) -> bool:
        """Whether the global batch is to be chosen, and nothing says how large it may be."""
        return self.batch is None and self.global_batch is None and self.most is None

    def up_to(self, most: int) -> BatchLimits:
        """The same with a largest global batch, where none was given or follows."""
        return replace(self, most=most) if self.is_open else self

    @property
    def largest(self) -> float:
        """The largest global batch allowed."""
        return math.inf if self.most is None else self.most

    def rounds(self, batch: int, devices: int) -> list[int]:
        """Micro-batches that such batches of each device may come in."""
        at_once = batch * devices
        if self.global_batch is not None:
            rounds, left = divmod(self.global_batch, at_once)
            found = [rounds] if rounds and not left else []
        elif self.micro_batches is not None or self.batch is not None or self.most is None:
            found = [self.micro_batches or 1]
        else:
            found = [1 << power for power in range((self.most // at_once).bit_length())]
        return [each for each in found if each * at_once <= self.largest and self._is_wanted(each)]

    def sizes(self, counts: Iterable[int]) -> Iterator[int]:
        """Batches of each device to compare on so many devices, rising: powers of two.

        Where the global batch is given, of each octave the largest that shares it out.
        """
        if self.at_once is not None:
            yield self.at_once
        elif self.global_batch is not None:
            shares = [self.global_batch // count for count in counts if self.global_batch % count == 0]
            yield from sorted({size for share in shares for size in self._parts(share)})
        else:
            yield from takewhile(lambda size: size <= self.largest, (1 << power for power in count()))

    def _parts(self, share: int) -> Iterable[int]:
        """Sizes of equal micro-batches of one device's share."""
        if self.micro_batches is not None:
            return [] if share % self.micro_batches else [share // self.micro_batches]
        dividing = (size for size in range(1, share + 1) if share % size == 0)
        return {size.bit_length(): size for size in dividing}.values()

    def _is_wanted(self, rounds: int) -> bool:
        return self.micro_batches is None or rounds == self.micro_batches

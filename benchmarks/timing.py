"""What a benchmark is, how it is measured, and how the benchmarks are found."""

from __future__ import annotations

import importlib
import pkgutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SECONDS = "s"
Work = Callable[[], object]
_REGISTERED: dict[str, Benchmark] = {}


class NotMeasured(Exception):
    """A benchmark needs something that this machine lacks, as a network."""


class Failed(Exception):
    """A benchmark's work did not end as it should, which misses its target."""


def import_numpy() -> None:
    """A fresh interpreter that imports numpy: what other commands are compared with."""
    subprocess.run([sys.executable, "-c", "import numpy"], check=True)


def import_torch() -> None:
    """A fresh interpreter that imports torch."""
    subprocess.run([sys.executable, "-c", "import torch"], check=True)


@dataclass(frozen=True)
class Target:
    """The most that a benchmark may take: an amount, and `times` that of other work on the same machine."""

    amount: float = 0.0
    times: float = 0.0
    of: Work = import_numpy

    def reference(self) -> float:
        """Seconds of the other work: it is measured again for each benchmark, since machines vary."""
        return statistics.median(_seconds(self.of) for _ in range(5)) if self.times else 0.0


@dataclass(frozen=True)
class Benchmark:
    """A named piece of work, how often it is run, and its target.

    It is timed, or in another `unit` than seconds measured by what it returns. `prepare` runs before each
    run, outside of the clock.
    """

    name: str
    target: Target
    runs: int
    work: Work
    prepare: Work = lambda: None
    unit: str = SECONDS
    warms_up: bool = True


@dataclass(frozen=True)
class Measurement:
    """What one benchmark took; `reference` are the seconds of the work that its target is a multiple of."""

    name: str
    unit: str
    median: float
    least: float
    target: float
    runs: int
    reference: float = 0.0

    @property
    def met(self) -> bool:
        """Whether the median is within the target."""
        return self.median <= self.target

    @property
    def ratio(self) -> float | None:
        """The median as a multiple of the reference."""
        return self.median / self.reference if self.reference else None


def benchmark(
    name: str, target_seconds: float, runs: int = 10, prepare: Work = lambda: None
) -> Callable[[Work], Work]:
    """Register the decorated function as a benchmark."""

    def decorate(work: Work) -> Work:
        register(Benchmark(name, Target(target_seconds), runs, work, prepare))
        return work

    return decorate


def register(given: Benchmark) -> None:
    """Add a benchmark; names are unique."""
    if given.name in _REGISTERED:
        raise ValueError(f"two benchmarks are called {given.name!r}")
    _REGISTERED[given.name] = given


def discover(package: str = "benchmarks") -> tuple[Benchmark, ...]:
    """All benchmarks of the package's modules, in order of module and definition."""
    folder = importlib.import_module(package).__path__
    for module in sorted(entry.name for entry in pkgutil.iter_modules(folder)):
        if module != "__main__":
            importlib.import_module(f"{package}.{module}")
    return tuple(_REGISTERED.values())


def measure(given: Benchmark) -> Measurement:
    """Run a benchmark as often as it asks for, once before to warm up."""
    if given.warms_up:
        given.prepare()
        given.work()
    reference = given.target.reference()
    target = given.target.amount + given.target.times * reference
    amounts = list(_amounts(given))
    return Measurement(
        given.name, given.unit, statistics.median(amounts), min(amounts), target, given.runs, reference
    )


def _amounts(given: Benchmark) -> Iterator[float]:
    for _ in range(given.runs):
        given.prepare()
        start = time.perf_counter()
        result = given.work()
        seconds = time.perf_counter() - start
        if given.unit == SECONDS:
            yield seconds
        else:
            assert isinstance(result, int | float), f"{given.name} returns its amount in {given.unit}"
            yield float(result)


def _seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start

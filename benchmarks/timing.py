"""What a benchmark is, how it is timed, and how the benchmarks are found."""

from __future__ import annotations

import importlib
import pkgutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Work = Callable[[], object]
_REGISTERED: dict[str, Benchmark] = {}


@dataclass(frozen=True)
class Benchmark:
    """A named piece of work, how often it is run, and the median time it must stay under."""

    name: str
    target_seconds: float
    runs: int
    work: Work
    prepare: Work


@dataclass(frozen=True)
class Measurement:
    """What one benchmark took."""

    name: str
    median_seconds: float
    fastest_seconds: float
    target_seconds: float
    runs: int

    @property
    def met(self) -> bool:
        """Whether the median is within the target."""
        return self.median_seconds <= self.target_seconds


def benchmark(
    name: str, target_seconds: float, runs: int = 10, prepare: Work = lambda: None
) -> Callable[[Work], Work]:
    """Register the decorated function; `prepare` runs before each timed call, outside the clock."""

    def register(work: Work) -> Work:
        if name in _REGISTERED:
            raise ValueError(f"two benchmarks are called {name!r}")
        _REGISTERED[name] = Benchmark(name, target_seconds, runs, work, prepare)
        return work

    return register


def discover(package: str = "benchmarks") -> tuple[Benchmark, ...]:
    """All benchmarks of the package's modules, in order of module and definition."""
    folder = importlib.import_module(package).__path__
    for module in sorted(entry.name for entry in pkgutil.iter_modules(folder)):
        if module != "__main__":
            importlib.import_module(f"{package}.{module}")
    return tuple(_REGISTERED.values())


def measure(given: Benchmark) -> Measurement:
    """Run a benchmark: once to warm up, then as often as it asks for."""
    given.prepare()
    given.work()
    times = list(_times(given))
    return Measurement(given.name, statistics.median(times), min(times), given.target_seconds, given.runs)


def _times(given: Benchmark) -> Iterator[float]:
    for _ in range(given.runs):
        given.prepare()
        start = time.perf_counter()
        given.work()
        yield time.perf_counter() - start

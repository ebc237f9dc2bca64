"""The shipped calibrations: constants fitted to measurements, and others in their place for a while.

A prediction with other constants is how a source is judged that must not be in any fit. Functions that keep
their results (`functools.cache`) keep what constants led to, so all of them forget when constants change; but
for those of facts and workloads, which know no calibration.

Each is read by one decoder (`persisted`) into the data class of its fields; what a file says of its own
origin (data, software) is for `foretrain explain` and is not read into it. A model reads its file when it
first prices something, so that a prediction reads what its operators need.

Boosted trees are stored as arrays, without pickle, and evaluated with numpy (`Forest`): a forest predicts the
sum of one leaf per tree. At a node a row goes left if feature <= threshold. Leaves are stored in the same
arrays as nodes and are their own children, so that every row takes `depth` steps.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import _lru_cache_wrapper, cached_property
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, TypeVar

from foretrain.facts.sheets import data_root, read_toml
from foretrain.persisted import restore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

T = TypeVar("T")
_WITHOUT_CONSTANTS = ("foretrain.facts.", "foretrain.workloads.")
_instead: dict[str, Mapping[str, Any]] = {}
_generation = [0]


def shipped_calibration(name: str) -> Traversable:
    """A shipped calibration, which may not exist."""
    return data_root() / "calibrations" / name


def calibration_content(name: str) -> dict[str, Any]:
    """The content of a calibration (JSON or TOML), with the entries that stand in for shipped ones."""
    file = shipped_calibration(name)
    content: dict[str, Any] = (
        read_toml(file) if name.endswith(".toml") else json.loads(file.read_text(encoding="utf-8"))
    )
    return {**content, **_instead.get(name, {})}


def load_calibration(kind: type[T], name: str, *keys: str) -> T:
    """A shipped calibration, or its part under some keys, as a data class."""
    content: Any = calibration_content(name)
    for key in keys:
        content = content[key]
    return restore(kind, content, name)


def calibration_arrays(name: str, prefix: str = "") -> dict[str, NDArray[Any]]:
    """The arrays of a shipped calibration whose names begin with a prefix, by the rest of their name."""
    import numpy as np

    with shipped_calibration(name).open("rb") as file, np.load(file) as arrays:
        return {each.removeprefix(prefix): arrays[each] for each in arrays.files if each.startswith(prefix)}


def calibration_array_names(name: str) -> tuple[str, ...]:
    """The names of the arrays of a shipped calibration, which are not read."""
    import numpy as np

    with shipped_calibration(name).open("rb") as file, np.load(file) as arrays:
        return tuple(arrays.files)


@contextmanager
def calibrations_instead(contents: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Predictions with other entries of some calibrations, by file: each replaces the shipped one whole.

    Not for several threads at once: all of a process see the same constants.
    """
    before = dict(_instead)
    _instead.update({name: {**before.get(name, {}), **entries} for name, entries in contents.items()})
    forget_constants()
    try:
        yield
    finally:
        _instead.clear()
        _instead.update(before)
        forget_constants()


def has_other_constants() -> bool:
    """Whether other entries are in the place of shipped ones."""
    return bool(_instead)


def constants_generation() -> int:
    """A number that changes whenever other calibrations come into use: graphs keep results of one only."""
    return _generation[0]


def forget_constants(packages: Collection[str] = ("foretrain",)) -> None:
    """Empty the caches of loaded modules that may hold results of calibrations."""
    _generation[0] += 1
    for name, module in list(sys.modules.items()):
        # Every module, not a list of them: a cache that someone adds later must be emptied as well.
        if name.split(".")[0] not in packages or name.startswith(_WITHOUT_CONSTANTS):
            continue
        for value in list(vars(module).values()):
            if isinstance(value, _lru_cache_wrapper) and not value.__module__.startswith(_WITHOUT_CONSTANTS):
                value.cache_clear()


ARRAYS = ("feature", "threshold", "left", "right", "value", "roots")


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees in arrays, nodes of all trees one after another; `roots` holds the first node of each."""

    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]
    roots: NDArray[np.int32]
    depth: int

    def predict(self, features: Floats) -> Floats:
        """The sum over trees for each row of `features` (rows x features)."""
        import numpy as np

        known = features.astype(np.float32)
        rows = np.arange(len(known))[:, None]
        at = np.broadcast_to(self.roots, (len(known), len(self.roots)))
        for _ in range(self.depth):
            goes_left = known[rows, self.feature[at]] <= self.threshold[at]
            at = np.where(goes_left, self.left[at], self.right[at])
        return np.asarray(self.value[at].sum(axis=1, dtype=float))

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The arrays to store, by name."""
        return {f"{prefix}{name}": getattr(self, name) for name in (*ARRAYS, "depth")}


def load_forest(arrays: Mapping[str, NDArray[Any]]) -> Forest:
    """A forest from arrays stored by `Forest.arrays`, without their prefix."""
    return Forest(**{name: arrays[name] for name in ARRAYS}, depth=int(arrays["depth"]))


class ForestFile(Mapping[str, Forest]):
    """The forests of a shipped file, by the prefix of their arrays; each is read when it is first used.

    Only keys that begin with one of `starts` are in it; all by default.
    """

    def __init__(self, name: str, starts: tuple[str, ...] = ("",)) -> None:
        self._name, self._starts = name, starts
        self._read: dict[str, Forest] = {}

    def __getitem__(self, key: str) -> Forest:
        if key not in self._read:
            if key not in self._keys:
                raise KeyError(key)
            self._read[key] = load_forest(calibration_arrays(self._name, f"{key}/"))
        return self._read[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    @cached_property
    def _keys(self) -> tuple[str, ...]:
        keys = {name.rpartition("/")[0] for name in calibration_array_names(self._name)}
        return tuple(sorted(key for key in keys if key.startswith(self._starts)))

"""An Inspector on disk: `NAME.safetensors` holds its weights, `NAME.json` everything else.

Both are plain data: nothing is executed when they are read. The JSON states the format, the targets and
features, and the SHA-256 of the weights; files that do not match each other or this version are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrain.encoding import to_json
from foretrain.errors import InvalidData, MissingData
from foretrain.facts.user_data import user_data_dir, write_atomically
from foretrain.learning.resources.inputs import NODE_FEATURES, OTHER_FEATURES, Scaling
from foretrain.learning.resources.options import InspectorOptions, need_torch_geometric
from foretrain.learning.resources.samples import SETTING, TARGETS
from foretrain.persisted import read_json_object, restore
from foretrain.prediction.step.cpu_workers import WorkerConstants
from foretrain.store.runs import Floats

if TYPE_CHECKING:
    from foretrain.learning.resources.training import Member

FORMAT = 1
SHIPPED = Path(__file__).parent / "data" / "inspector.json"
_SCALES = ("node_means", "node_deviations", "other_means", "other_deviations")


@dataclass(frozen=True)
class StrategyErrors:
    """Mean absolute percentage errors on models left out, over all figures of one strategy's runs."""

    runs: int
    inspector: float
    timeline: float


@dataclass(frozen=True, eq=False)
class Inspector:
    """A trained Inspector.

    `constants` are those of the machine by which it computes the timeline it starts from. `low` and `high`
    are the 10th and 90th percentile of measured over predicted figures of models left out; `by_strategy` its
    errors on them. `provenance` says what it was trained on.
    """

    options: InspectorOptions
    members: tuple[Member, ...]
    constants: WorkerConstants
    interval_seconds: float
    low: Floats
    high: Floats
    alternating: Floats
    by_strategy: Mapping[str, StrategyErrors]
    most_workers: int
    provenance: Mapping[str, Any]


def save(inspector: Inspector, file: Path) -> tuple[Path, Path]:
    """Write both files; `file` names the JSON, and the weights are beside it."""
    weights = _weights(inspector)
    first = inspector.members[0].network
    content = {
        "format": FORMAT,
        "targets": list(TARGETS),
        "setting": list(SETTING),
        "options": asdict(inspector.options),
        "repetitions": first.repetitions,
        "members": [
            {
                "epochs": each.epochs,
                "seconds": round(each.seconds, 2),
                "is_transferred": each.network.late is not None,
            }
            for each in inspector.members
        ],
        "constants": asdict(inspector.constants),
        "interval_seconds": inspector.interval_seconds,
        "low": inspector.low.tolist(),
        "high": inspector.high.tolist(),
        "alternating": inspector.alternating.tolist(),
        "by_strategy": {name: asdict(each) for name, each in inspector.by_strategy.items()},
        "most_workers": inspector.most_workers,
        "provenance": dict(inspector.provenance),
        "sha256": hashlib.sha256(weights).hexdigest(),
    }
    write_atomically(file.with_suffix(".safetensors"), weights)
    write_atomically(file, to_json(content) + "\n")
    return file, file.with_suffix(".safetensors")


def _weights(inspector: Inspector) -> bytes:
    safetensors = _safetensors()
    tensors: dict[str, Any] = {}
    for place, member in enumerate(inspector.members):
        for name, tensor in member.network.state_dict().items():
            tensors[f"{place}.{name}"] = tensor.numpy().astype(np.float32)
        for name in _SCALES:
            tensors[f"{place}.scaling.{name}"] = np.asarray(getattr(member.scaling, name), np.float64)
    content: bytes = safetensors.save(tensors)
    return content


def load(file: Path) -> Inspector:
    """Read an Inspector; files that are damaged, of another format or do not match raise `InvalidData`."""
    try:
        weights = file.with_suffix(".safetensors").read_bytes()
        file.stat()
    except OSError as error:
        raise MissingData(f"no Inspector in {file}: {error.strerror}; `foretrain learn resources`") from error
    raw = read_json_object(file, "an Inspector")
    _check(file, raw, weights)
    try:
        return _decode_inspector(raw, weights)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InvalidData(
            str(file), f"has incomplete or mismatched content ({error}); train again"
        ) from error


def _check(file: Path, raw: Mapping[str, Any], weights: bytes) -> None:
    if raw.get("format") != FORMAT:
        raise InvalidData(
            str(file), f"has format {raw.get('format')}; this version reads {FORMAT}: train again"
        )
    for name, wanted in (("targets", TARGETS), ("setting", SETTING)):
        if tuple(raw.get(name, ())) != wanted:
            raise InvalidData(str(file), f"was trained for other {name} than this version uses; train again")
    if hashlib.sha256(weights).hexdigest() != raw.get("sha256"):
        raise InvalidData(
            str(file), f"does not belong to {file.with_suffix('.safetensors').name}: their digests differ"
        )


def _decode_inspector(raw: Mapping[str, Any], weights: bytes) -> Inspector:
    tensors: Mapping[str, Any] = _safetensors().load(weights)
    options = restore(InspectorOptions, raw["options"])
    members = tuple(
        _member(place, each, tensors, options, int(raw["repetitions"]))
        for place, each in enumerate(raw["members"])
    )
    return Inspector(
        options=options,
        members=members,
        constants=restore(WorkerConstants, raw["constants"]),
        interval_seconds=float(raw["interval_seconds"]),
        low=_row(raw["low"]),
        high=_row(raw["high"]),
        alternating=np.array(raw["alternating"], float),
        by_strategy={name: restore(StrategyErrors, each) for name, each in raw["by_strategy"].items()},
        most_workers=int(raw["most_workers"]),
        provenance=raw["provenance"],
    )


def _row(values: Any) -> Floats:
    row = np.array(values, float)
    if row.shape != (len(TARGETS),) or not np.isfinite(row).all():
        raise ValueError(f"{len(TARGETS)} finite figures expected, got {values}")
    return row


def _member(
    place: int,
    raw: Mapping[str, Any],
    tensors: Mapping[str, Any],
    options: InspectorOptions,
    repetitions: int,
) -> Member:
    need_torch_geometric()
    import torch

    from foretrain.learning.resources.network import InspectorNetwork
    from foretrain.learning.resources.training import Member

    network = InspectorNetwork(options, repetitions, NODE_FEATURES, OTHER_FEATURES, len(TARGETS), 0.0)
    if raw["is_transferred"]:
        network = network.for_transfer()
    prefix = f"{place}."
    mine = {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
    scales = [np.asarray(mine.pop(f"scaling.{name}"), float) for name in _SCALES]
    network.load_state_dict({name: torch.from_numpy(each.copy()) for name, each in mine.items()})
    network.eval()
    return Member(network, Scaling(*scales), int(raw["epochs"]), float(raw["seconds"]))


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise MissingData("Inspectors need safetensors: pip install 'foretrain[gnn]'") from error
    return safetensors.numpy


def own_file() -> Path:
    """Where `foretrain learn resources` keeps the user's own Inspector."""
    return user_data_dir() / "inspectors" / "inspector.json"

"""PROFET's training steps: 15 CNNs in Keras (TensorFlow 2.5), FP32, plain SGD, on four AWS instances.

A step is timed by a callback between `on_train_batch_begin` and `on_train_batch_end`, which reads the loss:
the loop waits for every step. Images are random FP32 arrays in host memory, shuffled and gathered into
batches by the host and copied to the GPU every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from calibration.datasets.measurements import rows
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers._base import ModelSource, digest, versions
from foretrain.workloads.workload import Workload
from foretrain.workloads.zoo.catalogue import BuildOptions, Sizes

if TYPE_CHECKING:
    from foretrain.workloads.example import Example


FILE = Path("profet/train_steps_fp32_tf2.csv.gz")
DEVICES: Mapping[str, str] = {
    "g3s.xlarge": "m60",
    "g4dn.xlarge": "t4",
    "p2.xlarge": "k80",
    "p3.2xlarge": "v100-sxm2-16gb",
}
"""What is in each instance."""
_CLASSES: Mapping[int, int] = {32: 10, 64: 100, 128: 100, 224: 1000, 256: 1000}
"""Classes of PROFET's data set of each image size."""


@dataclass(frozen=True)
class ProfetModel(ModelSource):
    """One of PROFET's networks, for images of one size."""

    name: str
    kind: str = field(default="profet", init=False)
    runs_user_code: bool = field(default=False, init=False)

    def fingerprint(self) -> str:
        definitions = Path(__file__).with_name("profet_models.py").read_bytes()
        return digest({"model": self.name, "definitions": definitions, **versions("torch", "timm")})

    def example(self, options: BuildOptions) -> Example:
        import torch

        from calibration.datasets.profet_models import BUILDERS

        size, batch = options.image_size or 0, options.batch or 1
        with torch.device("meta"):
            return BUILDERS[self.name](Sizes(batch=batch, image_size=size), _CLASSES[size])


@dataclass(frozen=True, slots=True)
class ProfetStep:
    """The median of the repeats of one configuration."""

    model: str
    image_size: int
    batch: int
    device_id: str
    seconds: float

    @property
    def workload(self) -> Workload:
        """What ran, at its batch size."""
        return Workload(
            ProfetModel(self.model),
            BuildOptions(batch=self.batch, image_size=self.image_size),
            ResolvedOptions(precision="fp32", optimizer="sgd"),
        )


def read(data: Path) -> list[ProfetStep]:
    """All configurations, in the order of the file."""
    repeats: dict[tuple[str, int, int, str], list[float]] = {}
    for row in rows(data / FILE):
        size = int(row["dataset"].removesuffix("dataset"))
        key = (row["model"], size, int(row["batchsize"]), DEVICES[row["instance_name"]])
        repeats.setdefault(key, []).append(float(row["batch_latency"]))
    return [ProfetStep(*key, median(latencies)) for key, latencies in repeats.items()]

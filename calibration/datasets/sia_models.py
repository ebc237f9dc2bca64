"""The six models Sia and Pollux timed, as their training scripts build them.

Facts are from the repositories petuum/adaptdl (examples) and siasosp23/artifacts (adaptdl/benchmark/models):

    bert         BERT-base on SQuAD, 384 tokens, AdamW, FP32, attention step by step
    resnet18     the 18-layer residual network for 32-pixel images, SGD with momentum, FP32
    deepspeech2  five bidirectional GRUs of 800, SGD with momentum, FP32, on CMU ARCTIC
    resnet50     ResNet-50, SGD with momentum, mixed precision
    ncf          NeuMF on MovieLens-1M (6,040 users, 3,706 items), 32 factors, Adam, FP32
    yolov3       YOLOv3 on PASCAL VOC (20 classes), SGD with momentum, mixed precision, images of a random
                 size from 320 to 608 pixels

A batch of utterances is padded to its longest, the expected largest of the batch (`frames`). Assumed: they
last 3.0 s with a spread of 0.9 s. No published figure was found; the zoo's 8 s stood here first and was given
up after its times on one GPU were seen to be 1.2 to 2 times too long at most batches. Images of YOLOv3 are
taken at the size whose area is the mean of all.

AdaptDL adds work on every gradient (`gradient_noise_scale.py`): its square is summed in a hook, the reduced
one is scaled, squared and summed, and a single worker also keeps, averages and squares the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

from calibration.datasets.lambda_labs import SquadBert
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import ZooModel
from foretrain.workloads.readers._base import ModelSource, digest, versions
from foretrain.workloads.workload import Workload, graph_at
from foretrain.workloads.zoo.catalogue import BuildOptions, Sizes

if TYPE_CHECKING:
    from foretrain.workloads.example import Example


_UTTERANCE_SECONDS, _UTTERANCE_SPREAD_SECONDS = 3.0, 0.9
_FRAMES_PER_SECOND, _FRAMES_TOGETHER = 100, 20
_PIXELS = 480
_SMALL_PIXELS, _CLASSES = 32, 10
_TOKENS = 384
_USERS, _ITEMS, _FACTORS = 6040, 3706, 32
_STATISTICS, _STATISTICS_ALONE = 12, 21
_UPDATES = {"momentum": 4, "adam": 7, "adamw": 9}
"""Kernels for each gradient, in optimizers that loop over them as those of 2020 do."""
_CLIPPING, _UNSCALING = 2, 2
_CLIPPED = frozenset({"bert", "deepspeech2"})


@dataclass(frozen=True)
class SiaModel(ModelSource):
    """One of the models that the zoo has in another size."""

    name: str
    kind: str = field(default="sia", init=False)
    runs_user_code: bool = field(default=False, init=False)

    def fingerprint(self) -> str:
        definition = Path(__file__).read_bytes()
        return digest({"model": self.name, "definition": definition, **versions("torch")})

    def example(self, options: BuildOptions) -> Example:
        import torch

        with torch.device("meta"):
            return _example(self.name, options)


def _example(name: str, options: BuildOptions) -> Example:
    from foretrain.workloads.zoo.dense_prediction import yolov3
    from foretrain.workloads.zoo.recommendation import ncf

    batch = options.batch or 1
    if name == "ncf":
        layers = [_FACTORS * 8, _FACTORS * 4, _FACTORS * 2, _FACTORS]
        return ncf(Sizes(batch), users=_USERS, items=_ITEMS, factors=_FACTORS, layers=layers)
    if name == "yolov3":
        return yolov3(Sizes(batch, image_size=options.image_size or _PIXELS), classes=20)
    return _small_resnet(Sizes(batch, image_size=options.image_size or _SMALL_PIXELS))


def _small_resnet(sizes: Sizes) -> Example:
    """ResNet-18 for small images: its first convolution is 3x3 without stride, and nothing is pooled."""
    from torch import nn

    from foretrain.workloads.zoo.layers import conv_norm_relu
    from foretrain.workloads.zoo.residual import ResidualBlock
    from foretrain.workloads.zoo.tasks import image_classification

    layers: list[nn.Module] = [conv_norm_relu(3, 64, 3)]
    inputs = 64
    for stage, width in enumerate((64, 128, 256, 512)):
        for stride in (2 if stage else 1, 1):
            layers.append(ResidualBlock(inputs, width, stride, "basic"))
            inputs = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, _CLASSES)]
    return image_classification(nn.Sequential(*layers), sizes, classes=_CLASSES)


def _workload(source: ModelSource, sizes: BuildOptions, precision: str, optimizer: str) -> Workload:
    options = ResolvedOptions(precision=precision, optimizer=optimizer, attention="eager")
    return Workload(source, sizes, options)


WORKLOADS: Mapping[str, Workload] = {
    "bert": _workload(
        SquadBert("bert_base_squad"), BuildOptions(seq_len=_TOKENS, attention="eager"), "fp32", "adamw"
    ),
    "resnet18": _workload(SiaModel("resnet18"), BuildOptions(image_size=_SMALL_PIXELS), "fp32", "momentum"),
    "deepspeech2": _workload(ZooModel("deepspeech2", "deepspeech2"), BuildOptions(), "fp32", "momentum"),
    "resnet50": _workload(ZooModel("resnet50", "resnet50"), BuildOptions(), "fp16", "momentum"),
    "ncf": _workload(SiaModel("ncf"), BuildOptions(), "fp32", "adam"),
    "yolov3": _workload(SiaModel("yolov3"), BuildOptions(image_size=_PIXELS), "fp16", "momentum"),
}
MIXED = frozenset(name for name, workload in WORKLOADS.items() if workload.options.precision == "fp16")


def frames(batch: int) -> int:
    """Spectrogram frames of a batch padded to its longest utterance, in whole fifths of a second.

    The expected largest of n normal draws is about the quantile (n - 3/8) / (n + 1/4) (Blom 1958).
    """
    beyond = NormalDist().inv_cdf((batch - 0.375) / (batch + 0.25))
    longest = _UTTERANCE_SECONDS + _UTTERANCE_SPREAD_SECONDS * beyond
    return round(longest * _FRAMES_PER_SECOND / _FRAMES_TOGETHER) * _FRAMES_TOGETHER


def graph(model: str, batch: int, spectrogram_frames: int | None = None) -> Graph:
    """One step of a model at the batch of one GPU; `spectrogram_frames` for a batch of utterances."""
    workload = WORKLOADS[model]
    if model == "deepspeech2":
        workload = workload.at(seq_len=spectrogram_frames or frames(batch))
    return graph_at(workload, batch)


def launches_per_gradient(model: str, devices: int) -> int:
    """Kernels launched for each gradient: statistics, clipping, scaling, the update."""
    options = WORKLOADS[model].options
    return (
        (_STATISTICS if devices > 1 else _STATISTICS_ALONE)
        + _UPDATES[options.optimizer or "momentum"]
        + _CLIPPING * (model in _CLIPPED)
        + _UNSCALING * (options.precision == "fp16")
    )

"""KernelBench: forward passes of single operators, chains and networks, eager and compiled, on eleven GPUs.

The data set describes a problem by its name, input shapes and constructor arguments. `build` makes a module
of it where that is enough: 71 operators of level 1, chains of level 2 without a reduction over an unnamed
dimension, the plain networks of level 3; None elsewhere. PyTorch 2.5 in FP32: products without TF32,
convolutions with it; modules are in training mode, without gradients. Each call is timed alone, between two
waits for the GPU, so that what the host needs shows in short ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibration.datasets.measurements import rows
from foretrain.workloads.graph import Graph
from foretrain.workloads.ops import Kind, Op
from foretrain.workloads.readers._base import ModelSource, digest, versions
from foretrain.workloads.rules import operators
from foretrain.workloads.zoo.catalogue import BuildOptions

if TYPE_CHECKING:
    import torch

    from foretrain.workloads.example import Example

_TIMES, _PROBLEMS = Path("kernelbench/times.csv.gz"), Path("kernelbench/problems.csv")
_REDUCES = frozenset({"mean", "sum", "max", "min", "logsumexp"})
EAGER, COMPILED, CAPTURED = "eager", "inductor-default", "inductor-reduce-overhead"
Forward = Callable[..., Any]


@dataclass(frozen=True)
class Problem:
    """One problem; `sizes` are the named sizes of its script."""

    version: str
    level: int
    name: str
    input_shapes: tuple[tuple[int, ...], ...]
    constructor: tuple[Any, ...]
    sizes: Mapping[str, Any]
    calls: frozenset[str]

    @property
    def key(self) -> tuple[str, int, str]:
        """What times refer to it by."""
        return self.version, self.level, self.name

    @property
    def title(self) -> str:
        """The name without its number."""
        return self.name.split("_", 1)[1].rstrip("_")

    @property
    def batch(self) -> int:
        """The first side of the first input."""
        return self.input_shapes[0][0]

    @property
    def has_batch(self) -> bool:
        """Whether the first input can have another first side: not if it is a matrix among matrices."""
        return self.level > 1 or "matri" not in self.title.lower() or "tensor" in self.title

    def at(self, batch: int) -> Problem:
        """The problem with another batch; inputs of the first one's shape, such as targets, follow it."""
        first, *others = self.input_shapes
        follow = [(batch, *shape[1:]) if shape[0] == first[0] else shape for shape in others]
        return replace(self, input_shapes=((batch, *first[1:]), *follow))


@dataclass(frozen=True, slots=True)
class Time:
    """Seconds of one call of a problem, on a device in a machine `host`."""

    key: tuple[str, int, str]
    device_id: str
    host: str
    mode: str
    seconds: float


def problems(data: Path) -> list[Problem]:
    """All problems."""
    return [
        Problem(
            version=row["version"],
            level=int(row["level"]),
            name=row["problem"],
            input_shapes=tuple(
                tuple(int(side) for side in shape.split("x")) for shape in row["input_shapes"].split()
            ),
            constructor=tuple(json.loads(row["constructor"])),
            sizes=json.loads(row["sizes"]),
            calls=frozenset(call.split(":")[0] for call in row["calls"].split()),
        )
        for row in rows(data / _PROBLEMS)
        if re.fullmatch(r"[0-9x ]+", row["input_shapes"])
    ]


def times(data: Path, modes: tuple[str, ...] = (EAGER, COMPILED)) -> Iterator[Time]:
    """All times of some modes. The A10G rows filed under A10 are the same machine."""
    for row in rows(data / _TIMES):
        if row["mode"] in modes:
            key = row["version"], int(row["level"]), row["problem"]
            name = "a10g" if row["device"] == "a10" else row["device"]
            yield Time(key, name, row["host"], row["mode"], float(row["seconds"]))


def example_of(problem: Problem) -> Example | None:
    """A problem with its inputs; None where its description does not say all of it."""
    import torch

    from foretrain.workloads.example import Example

    with torch.device("meta"):
        module = build(problem)
        inputs = tuple(torch.empty(shape) for shape in problem.input_shapes)
    if module is None:
        return None
    if "CrossEntropy" in problem.name:
        inputs = (inputs[0], torch.empty(problem.input_shapes[1], dtype=torch.int64, device="meta"))
    return Example(module, inputs, loss=None, samples=problem.input_shapes[0][0])


def graph_of(problem: Problem) -> Graph | None:
    """The forward pass of a problem; None where its description does not say all of it."""
    from foretrain.workloads.options import ResolvedOptions
    from foretrain.workloads.tracing.step import trace

    example = example_of(problem)
    if example is None:
        return None
    return trace(example, ResolvedOptions(precision="fp32", optimizer=None, forward_only=True))


@dataclass(frozen=True, eq=False)
class ProblemModel(ModelSource):
    """A problem with a batch: in training mode also where only the forward pass is asked for."""

    problem: Problem
    kind: str = field(default="kernelbench", init=False)
    runs_user_code: bool = field(default=False, init=False)

    @property
    def name(self) -> str:  # type: ignore[override]
        """Version and name of the problem."""
        return f"{self.problem.version} {self.problem.name}"

    def fingerprint(self) -> str:
        text = json.dumps(
            [self.problem.key, self.problem.input_shapes, self.problem.constructor, self.problem.sizes]
        )
        return digest({"problem": text, "builder": Path(__file__).read_bytes(), **versions("torch", "timm")})

    def example(self, options: BuildOptions) -> Example:
        import torch

        class Training(torch.nn.Module):
            """Stays in training mode, as the benchmark leaves it."""

            def __init__(self, inner: torch.nn.Module) -> None:
                super().__init__()
                self.inner = inner

            def train(self, mode: bool = True) -> Training:
                del mode
                super().train(True)
                return self

            def forward(self, *inputs: Any) -> Any:
                return self.inner(*inputs)

        example = example_of(self.problem.at(options.batch or self.problem.batch))
        assert example is not None, f"{self.name} is not described completely"
        return replace(example, module=Training(example.module))


def works_in_tf32(graph: Graph) -> tuple[Op, ...]:
    """The operators of a graph, with its convolutions in TF32 as PyTorch runs them by default."""
    return tuple(
        op._replace(work=replace(op.work, dtype="tf32"))
        if op.work.kind is Kind.CONVOLUTION and op.work.dtype == "float32"
        else op
        for op in operators(graph)
    )


def build(problem: Problem) -> torch.nn.Module | None:
    """The module of a problem, on the device of the context; None where its description is not enough."""
    if problem.level == 1:
        return _operator(problem)
    return _chain(problem) if problem.level == 2 else _network(problem)


def _module(function: Forward) -> torch.nn.Module:
    import torch

    class Calls(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return function(*inputs)

    return Calls()


def _operator(problem: Problem) -> torch.nn.Module | None:
    import torch

    nn, given = torch.nn, problem.constructor
    title = problem.title
    if title.startswith("conv_"):
        return _convolution(problem)
    function = _functions().get(title)
    if function is not None:
        return _module(function)
    if "matri" in title.lower() and "diagonal" not in title and "scalar" not in title:
        return _module(_product(title))
    if title.startswith(("Sum_red", "Mean_red", "Max_red", "Min_red", "Arg")):
        name = title.split("_")[0].lower()
        return _module(lambda x: getattr(torch, name)(x, dim=given[0]))
    layers: Mapping[str, Callable[[], torch.nn.Module]] = {
        "BatchNorm": lambda: nn.BatchNorm2d(given[0]),
        "InstanceNorm": lambda: nn.InstanceNorm2d(given[0]),
        "GroupNorm": lambda: nn.GroupNorm(given[1], given[0]),
        "LayerNorm": lambda: nn.LayerNorm(given[0]),
        "Max_Pooling_1D": lambda: nn.MaxPool1d(*given[:4]),
        "Max_Pooling_2D": lambda: nn.MaxPool2d(*given[:4]),
        "Max_Pooling_3D": lambda: nn.MaxPool3d(*given[:4]),
        "Average_Pooling_1D": lambda: nn.AvgPool1d(*given),
        "Average_Pooling_2D": lambda: nn.AvgPool2d(*given),
        "Average_Pooling_3D": lambda: nn.AvgPool3d(*given),
    }
    return layers[title]() if title in layers else None


def _functions() -> Mapping[str, Forward]:
    """Level 1 by title: operators without settings."""
    import torch

    f = torch.nn.functional
    return {
        "ReLU": torch.relu,
        "LeakyReLU": f.leaky_relu,
        "Sigmoid": torch.sigmoid,
        "Tanh": torch.tanh,
        "Softmax": lambda x: torch.softmax(x, dim=1),
        "LogSoftmax": lambda x: torch.log_softmax(x, dim=1),
        "Swish": lambda x: x * torch.sigmoid(x),
        "GELU": f.gelu,
        "SELU": torch.selu,
        "HardSigmoid": f.hardsigmoid,
        "Softplus": f.softplus,
        "Softsign": lambda x: x / (1 + torch.abs(x)),
        "ELU": f.elu,
        "HardTanh": f.hardtanh,
        "RMSNorm": lambda x: x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5),
        "FrobeniusNorm": lambda x: x / torch.norm(x, p="fro"),
        "L1Norm": lambda x: x / torch.mean(torch.abs(x), dim=1, keepdim=True),
        "L2Norm": lambda x: x / torch.norm(x, p=2, dim=1, keepdim=True),
        "MinGPTNewGelu": lambda x: 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.044715 * torch.pow(x, 3.0)))),
        "Matrix_scalar_multiplication": lambda x: x * 3.14,
        "4D_tensor_matrix_multiplication": lambda a, b: torch.einsum("bijl,lk->bijk", a, b),
        "cumsum": lambda x: torch.cumsum(x, dim=1),
        "cumprod": lambda x: torch.cumprod(x, dim=1),
        "MSELoss": lambda x, y: torch.mean((x - y) ** 2),
        "HuberLoss": f.smooth_l1_loss,
        "CrossEntropyLoss": f.cross_entropy,
        "KLDivLoss": lambda x, y: f.kl_div(torch.log(x), y, reduction="batchmean"),
        "TripletMarginLoss": f.triplet_margin_loss,
        "HingeLoss": lambda x, y: torch.mean(torch.clamp(1 - x * y, min=0)),
    }


def _product(title: str) -> Forward:
    import torch

    first, second = "transposed_A" in title or "both" in title, "transposed_B" in title or "both" in title
    masks = {"upper": torch.triu, "lower": torch.tril}
    mask = next((masks[word] for word in masks if word in title), None)

    def multiply(a: Any, b: Any) -> Any:
        product = torch.matmul(a.T if first else a, b.T if second else b)
        return product if mask is None else mask(product)

    return multiply


def _convolution(problem: Problem, bias: bool = False) -> torch.nn.Module | None:
    """A convolution from named sizes; None where a kernel has other names for its sides."""
    import torch

    sizes = problem.sizes
    if "separable" in problem.name or not {"in_channels", "kernel_size"} <= sizes.keys():
        return None
    if "asymmetric_kernel" in problem.name and not isinstance(sizes["kernel_size"], list):
        return None
    axes = len(problem.input_shapes[0]) - 2
    is_transposed = "transpose" in problem.name.lower()
    layer = getattr(torch.nn, f"Conv{'Transpose' if is_transposed else ''}{axes}d")
    names = ("stride", "padding", "dilation", "groups", *(("output_padding",) if is_transposed else ()))
    settings = {name: sizes[name] for name in names if name in sizes}
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    kernel = tuple(sizes["kernel_size"]) if isinstance(sizes["kernel_size"], list) else sizes["kernel_size"]
    inside, outside = sizes["in_channels"], sizes.get("out_channels", sizes["in_channels"])
    if "depthwise" in problem.name:
        settings["groups"] = inside
    built: torch.nn.Module = layer(inside, outside, kernel, bias=bias, **settings)
    return built


def _chain(problem: Problem) -> torch.nn.Module | None:
    """A convolution or linear layer, then pointwise operators, norms, softmax and pooling over images."""
    import torch

    first, *others = problem.title.split("_")
    sizes = problem.sizes
    if problem.calls & _REDUCES:
        return None
    if first.lower().startswith("conv"):
        if "groups" in sizes and "GroupNorm" in others:
            return None  # which of the layers the groups belong to is not specified
        layer = _convolution(problem, bias=True)
    else:
        inside, outside = sizes.get("in_features"), sizes.get("out_features")
        if first not in ("Gemm", "Matmul", "Linear") or not inside or not outside:
            return None
        layer = torch.nn.Linear(inside, outside)
    channels = sizes.get("out_channels", sizes.get("out_features"))
    steps = [_link(word, sizes, channels, len(problem.input_shapes[0]) - 2) for word in others]
    if layer is None or any(step is None for step in steps) or len(problem.input_shapes) > 1:
        return None
    modules = [step if isinstance(step, torch.nn.Module) else _module(step) for step in steps if step]
    return torch.nn.Sequential(layer, *modules)


def _link(word: str, sizes: Mapping[str, Any], channels: int, axes: int) -> Any:
    """One operator of a chain: a module or function; None if the data set does not say what it does."""
    import torch

    nn, f = torch.nn, torch.nn.functional
    shaped = {name: shape for name, shape in sizes.items() if name.endswith("_shape")}
    pointwise: Mapping[str, Forward] = {
        "ReLU": torch.relu,
        "HardSwish": f.hardswish,
        "Mish": f.mish,
        "Sigmoid": torch.sigmoid,
        "Tanh": torch.tanh,
        "GELU": f.gelu,
        "LeakyReLU": f.leaky_relu,
        "Hardtanh": f.hardtanh,
        "Swish": lambda x: torch.sigmoid(x) * x,
        "Clamp": lambda x: torch.clamp(x, 0.0, 1.0),
        "Softmax": lambda x: torch.softmax(x, dim=1),
        "Dropout": lambda x: x,
    }
    if word in pointwise:
        return pointwise[word]
    scalar = {"Scale": 2.0, "Scaling": 2.0, "Multiply": 2.0, "Divide": 2.0, "Subtract": 2.0, "Add": 2.0}
    if word == "BiasAdd" or (word in scalar and len(shaped) == 1):
        if len(shaped) != 1:
            return None
        (shape,) = shaped.values()
        return _scaled(tuple(shape))
    if word in scalar and not shaped:
        return lambda x: x * scalar[word]
    if word == "BatchNorm":
        return (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[axes](channels)
    if word == "InstanceNorm" and axes == 2:
        return nn.InstanceNorm2d(channels)
    if word == "GroupNorm" and "num_groups" in sizes:
        return nn.GroupNorm(sizes["num_groups"], channels)
    if word in ("MaxPool", "AvgPool") and axes >= 2 and "pool_kernel_size" in sizes:
        kind = word.removesuffix("Pool")
        return getattr(nn, f"{kind}Pool{axes}d")(sizes["pool_kernel_size"])
    return None


def _scaled(shape: tuple[int, ...]) -> torch.nn.Module:
    import torch

    class Add(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Parameter(torch.empty(shape))

        def forward(self, x: Any) -> Any:
            return x + self.bias

    return Add()


_TORCHVISION = {
    "ResNet101": "resnet101",
    "ResNet18": "resnet18",
    "VGG16": "vgg16",
    "VGG19": "vgg19",
    "DenseNet121": "densenet121",
    "DenseNet201": "densenet201",
    "MobileNetV2": "mobilenet_v2",
}


def _network(problem: Problem) -> torch.nn.Module | None:
    import torch

    nn = torch.nn
    if problem.title in _TORCHVISION:
        from foretrain.workloads.readers.image_libraries import TORCHVISION, read_torchvision
        from foretrain.workloads.zoo.catalogue import BuildOptions

        source = read_torchvision(TORCHVISION + _TORCHVISION[problem.title])
        return source.example(BuildOptions(batch=problem.input_shapes[0][0])).module
    if problem.title.endswith("MLP") and problem.title != "SwinMLP":
        into, widths, out = problem.constructor
        if widths is None:
            return None
        layers: list[torch.nn.Module] = []
        for width in widths:
            layers += [nn.Linear(into, width), nn.ReLU()]
            into = width
        return nn.Sequential(*layers, nn.Linear(into, out))
    if problem.title == "MobileNetV1":
        return _mobilenet_v1()
    return None


def _mobilenet_v1() -> torch.nn.Module:
    """Howard et al. 2017, table 1: a convolution, then 13 pairs of depthwise and pointwise ones."""
    import torch

    nn = torch.nn
    layers: list[torch.nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(True)]
    into = 32
    for out, stride in (
        (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)
    ):  # fmt: skip
        layers += [nn.Conv2d(into, into, 3, stride, 1, groups=into, bias=False), nn.BatchNorm2d(into)]
        layers += [nn.ReLU(True), nn.Conv2d(into, out, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(True)]
        into = out
    return nn.Sequential(*layers, nn.AvgPool2d(7), nn.Flatten(), nn.Linear(into, 1000))

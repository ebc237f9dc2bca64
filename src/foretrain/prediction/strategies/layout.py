"""How a step is spread over devices, as people write it: `ddp`, `fsdp`, `tp=4,pp=2,dp=8,zero=1` ...

One word names a strategy that takes all devices. A list names degrees: tensor (`tp`), context (`cp`),
pipeline (`pp`), data (`dp`; left out, it takes what the others leave), expert (`ep`, of the data-parallel
devices), `zero` 1 to 3 to shard over the data-parallel devices, `shard` to do so within groups of that size,
`sp` for sequence parallelism (`sp=keep` keeps what layers gather for their backward pass instead of gathering
it again), `schedule` and `chunks` of the pipeline, `compress` for the gradients, and `overlap=no` to reduce
them after the backward pass instead of during it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from foretrain.errors import InvalidRequest, nearest
from foretrain.prediction.strategies.data_parallel import HOOKS
from foretrain.prediction.strategies.parameter_server import ServerPlan, server_plan
from foretrain.prediction.strategies.pipeline.schedules import SCHEDULES
from foretrain.prediction.strategies.program import Axis

ZERO_STAGES = {"zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
WORDS = ("ddp", "dp", *ZERO_STAGES, "hsdp", "auto")
SERVERS = ("ps-sync", "ps-async", "ps-ksync=K", "ps-kbatchsync=K", "ps-kasync=K", "ps-kbatchasync=K")
_DEGREES = ("tp", "cp", "pp", "dp", "ep", "shard")
_OTHERS = ("zero", "sp", "schedule", "chunks", "compress", "overlap")
FORMS = f"{', '.join(WORDS)}, {', '.join(SERVERS)}, or degrees such as tp=4,pp=2,dp=8,zero=1"


@dataclass(frozen=True)
class Layout:
    """The degrees of every axis, and how the work along them is run.

    `data` counts replicas that share nothing, `shard` those that share state under ZeRO or FSDP.
    """

    name: str
    tensor: int = 1
    context: int = 1
    expert: int = 1
    shard: int = 1
    data: int = 1
    pipeline: int = 1
    zero_stage: int = 0
    sequence_parallel: bool = False
    keeps_gathered: bool = False
    overlaps: bool = True
    schedule: str = "1f1b"
    chunks: int = 1
    compression: str | None = None
    is_single_process: bool = False
    servers: ServerPlan | None = None

    @property
    def degrees(self) -> Mapping[Axis, int]:
        """Degrees by axis."""
        return {
            Axis.TENSOR: self.tensor,
            Axis.CONTEXT: self.context,
            Axis.EXPERT: self.expert,
            Axis.SHARD: self.shard,
            Axis.DATA: self.data,
            Axis.PIPELINE: self.pipeline,
        }

    @property
    def devices(self) -> int:
        """How many devices it takes."""
        return math.prod(self.degrees.values())

    @property
    def replicas(self) -> int:
        """How many devices, or groups of them, train on samples of their own."""
        return self.expert * self.shard * self.data

    @property
    def contributions(self) -> int:
        """How many replicas' gradients enter an update: all, unless servers wait for fewer."""
        return self.replicas if self.servers is None else self.servers.k


def layout_of(strategy: str, devices: int, devices_per_node: int) -> Layout:
    """The layout a strategy stands for on so many devices; `auto` is for `search`, not for this."""
    if strategy.startswith("ps-"):
        return Layout(strategy, data=devices, servers=server_plan(strategy, devices))
    if strategy == "ddp":
        return Layout(strategy, data=devices)
    if strategy == "dp":
        return _single_process(devices, devices_per_node)
    if strategy in ZERO_STAGES:
        return Layout(strategy, shard=devices, zero_stage=ZERO_STAGES[strategy])
    if strategy == "hsdp":
        return Layout(strategy, shard=devices_per_node, data=devices // devices_per_node, zero_stage=3)
    if "=" not in strategy:
        near = nearest(strategy, [*WORDS, *SERVERS])
        meant = f"; did you mean {near[0]}?" if near else ""
        raise InvalidRequest(f"strategy {strategy!r} is not one of {FORMS}{meant}")
    return _hybrid(strategy, devices)


def _single_process(devices: int, devices_per_node: int) -> Layout:
    if devices > devices_per_node:
        raise InvalidRequest(
            f"dp is PyTorch's DataParallel, one process with the devices of one node; for {devices} devices, "
            f"{devices_per_node} to a node, use ddp"
        )
    return Layout("dp", data=devices, is_single_process=True)


def _hybrid(strategy: str, devices: int) -> Layout:
    given = _given(strategy)
    degrees = {name: _whole(name, given[name]) for name in _DEGREES if name in given}
    layout = Layout(
        strategy,
        tensor=degrees.get("tp", 1),
        context=degrees.get("cp", 1),
        pipeline=degrees.get("pp", 1),
        zero_stage=_choice("zero", given.get("zero", "0"), ("0", "1", "2", "3")),
        sequence_parallel="sp" in given,
        keeps_gathered=_word("sp", given.get("sp", ""), ("", "keep")) == "keep",
        overlaps=_word("overlap", given.get("overlap", "yes"), ("yes", "no")) == "yes",
        schedule=_schedule(given),
        chunks=_whole("chunks", given.get("chunks", "1")),
        compression=_hook(given),
    )
    _check_use(layout)
    return _with_replicas(layout, degrees, devices)


def _check_use(layout: Layout) -> None:
    """Refuse what would have no effect."""
    if layout.chunks > 1 and layout.schedule != "interleaved":
        raise InvalidRequest(
            f"schedule={layout.schedule} runs one chunk on each device, not {layout.chunks}; use "
            "schedule=interleaved, or leave chunks out"
        )
    if layout.chunks > 1 and layout.pipeline == 1:
        raise InvalidRequest(f"chunks={layout.chunks} divides the stages of a pipeline: give pp=2 or more")
    if layout.sequence_parallel and layout.tensor == 1:
        raise InvalidRequest("sp goes with tensor parallelism: give tp=2 or more, or leave it out")


def _with_replicas(layout: Layout, degrees: Mapping[str, int], devices: int) -> Layout:
    model = layout.tensor * layout.context * layout.pipeline
    data = degrees.get("dp", max(1, devices // model))
    if model * data != devices:
        raise InvalidRequest(_does_not_multiply(layout, data, devices))
    expert = degrees.get("ep", 1)
    if data % expert:
        raise InvalidRequest(
            f"expert parallelism over {expert} of {data} data-parallel devices: ep must divide dp "
            f"({_divisors(data)})"
        )
    left = data // expert
    if not layout.zero_stage:
        if "shard" in degrees:
            raise InvalidRequest("shard=N says how many devices share state: give zero=1, 2 or 3 with it")
        return replace(layout, expert=expert, data=left)
    shard = degrees.get("shard", left)
    if left % shard:
        raise InvalidRequest(
            f"shard={shard} does not divide {left} data-parallel devices ({_divisors(left)})"
        )
    return replace(layout, expert=expert, shard=shard, data=left // shard)


def _does_not_multiply(layout: Layout, data: int, devices: int) -> str:
    model = layout.tensor * layout.context * layout.pipeline
    parts = {"tensor": layout.tensor, "context": layout.context, "pipeline": layout.pipeline, "data": data}
    product = " x ".join(f"{name} {degree}" for name, degree in parts.items() if degree > 1 or name == "data")
    said = f"{product} = {model * data} devices, but the hardware has {devices}"
    if devices % model == 0:
        return f"{said}; dp={devices // model} would take all of them"
    return f"{said}; tensor x context x pipeline must divide {devices} ({_divisors(devices)})"


def _divisors(number: int) -> str:
    return ", ".join(str(each) for each in range(1, number + 1) if number % each == 0)


def _given(strategy: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in strategy.split(","):
        name, _, value = item.strip().partition("=")
        if name not in (*_DEGREES, *_OTHERS):
            known = ", ".join((*_DEGREES, *_OTHERS))
            raise InvalidRequest(f"strategy {strategy!r}: {name!r} is not one of {known}")
        if name in found:
            raise InvalidRequest(f"strategy {strategy!r} says {name} twice")
        found[name] = value
    return found


def _whole(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()) or int(value) < 1:
        raise InvalidRequest(f"{name}={value or '...'}: give a whole number of at least 1")
    return int(value)


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> int:
    return int(_word(name, value, allowed))


def _word(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        forms = ", ".join(f"{name}={each}" if each else name for each in allowed)
        raise InvalidRequest(f"{name}={value}: give one of {forms}")
    return value


def _schedule(given: Mapping[str, str]) -> str:
    name = given.get("schedule", "interleaved" if "chunks" in given else "1f1b")
    if name not in SCHEDULES:
        raise InvalidRequest(f"schedule={name}: give one of {', '.join(SCHEDULES)}")
    return name


def _hook(given: Mapping[str, str]) -> str | None:
    name = given.get("compress")
    if name is not None and name not in HOOKS:
        raise InvalidRequest(f"compress={name}: give one of {', '.join(HOOKS)}")
    return name

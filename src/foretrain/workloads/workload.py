"""A workload: which model is trained, at which sizes, with which options; from a request, and its graphs.

Graphs come from the cache, are made from the recordings that ship with the package (`recorded`), are
re-derived from a recorded family where only the batch size or the sequence length differs, or are traced.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from foretrain.decoding import part
from foretrain.encoding import encode
from foretrain.errors import InvalidRequest, MissingData
from foretrain.progress import phase
from foretrain.workloads import cache
from foretrain.workloads.depth import at_every_depth, deepen
from foretrain.workloads.executed import ExecutedGraph, offload_optimizer
from foretrain.workloads.family import Family, NotDerivable, RecordedAxis, derive_family
from foretrain.workloads.graph import NO_TENSOR, Graph, with_options
from foretrain.workloads.options import (
    ATTENTION_KERNELS,
    HALF_PRECISIONS,
    HALF_WEIGHTS,
    OFFLOADS,
    REAL,
    ResolvedOptions,
    StepOptions,
    WorkloadRequest,
    usual_attention,
)
from foretrain.workloads.readers import ModelSource, read_model
from foretrain.workloads.recorded.library import RecordedModel, find_recording, has_torch
from foretrain.workloads.zoo import BuildOptions

if TYPE_CHECKING:
    from foretrain.workloads.lora import LoraOptions
    from foretrain.workloads.zoo import AttentionKind


BATCHES = (2, 4)
"""Where families are recorded. Not at 1: tensors of size one take shortcuts that larger ones do not."""
FEW_BLOCKS = (4, 5)
"""Equal blocks that are recorded of a model with many; the first and the last of them are special."""
MANY = 3
"""How many times as many blocks a model has if it is worth while to record few."""
_MASK = 3
"""The operand of fused attention that is its mask."""
RECENT = 32
"""Graphs that stay in memory: searches return to the same batch sizes."""
Recorded = TypeVar("Recorded", Graph, Family)
DEFAULTS = ResolvedOptions()
_KEY_AFTER = {"forward_only": "offload", "half_outputs": "autocast"}
"""Where the JSON has the two that are not declared among the options of a step: its order is stable."""


@dataclass(frozen=True)
class Workload:
    """A model as it will be trained on one device.

    `left_open` names options that were not given: `precision` is then the device default, `weights`
    the default of the strategy, `frozen_weights` those under LoRA (`prediction.scenario`).
    """

    source: ModelSource
    sizes: BuildOptions
    options: ResolvedOptions
    lora: LoraOptions | None = None
    left_open: frozenset[str] = frozenset()

    def at(self, batch: int | None = None, seq_len: int | None = None) -> Workload:
        """The same workload at another batch size or sequence length."""
        sizes = replace(self.sizes, batch=batch or self.sizes.batch, seq_len=seq_len or self.sizes.seq_len)
        return replace(self, sizes=sizes)


def description(workload: Workload, samples: int, tokens: int) -> dict[str, Any]:
    """A workload as plain data, with the samples and tokens of a step."""
    return {
        "model": workload.source.name,
        "source": workload.source.kind,
        "batch": samples,
        "tokens": tokens,
        **_encode(workload.options),
        "lora": encode(workload.lora),
    }


def _encode(options: ResolvedOptions) -> dict[str, Any]:
    """Options as plain data; `fp8_scaling` belongs to FP8, `software_year` to those who ask for one."""
    encoded: dict[str, Any] = encode(options)
    for name, after in _KEY_AFTER.items():
        place = list(encoded).index(after) + 1
        rest = {key: encoded.pop(key) for key in list(encoded)[place:]}
        encoded |= {name: rest.pop(name), **rest}
    if options.precision != "fp8":
        del encoded["fp8_scaling"]
    if options.software_year is None:
        del encoded["software_year"]
    return encoded


def workload_of(
    request: WorkloadRequest, source: ModelSource | None = None, allow_user_code: bool = True
) -> Workload:
    """The workload of a request; `source` is the model where it is not to be read from its name."""
    for name in ("batch", "seq_len", "image_size"):
        value = getattr(request, name)
        if value is not None and value < 1:
            raise InvalidRequest(f"{name} must be at least 1, got {value}")
    _step_options(request, has_attention=False)  # refuses what is wrong before the model, which takes longer
    lora = _lora(request)
    if source is None:
        source = read_model(request.model, allow_user_code=allow_user_code)
    options = _step_options(request, source.has_attention)
    is_real = request.trace == REAL
    if is_real and not source.has_data:
        raise InvalidRequest(
            f"{source.name} comes without data, so its step cannot be run: `trace` {REAL} is for "
            "FILE.py:callable, a module of this process, and the detection models of torchvision"
        )
    sizes = BuildOptions(
        batch=request.batch,
        seq_len=request.seq_len,
        image_size=request.image_size,
        attention=cast("AttentionKind", options.attention),  # ResolvedOptions has checked it
        real=is_real,
    )
    return Workload(source, sizes, options, lora, frozenset(_list_left_open(request)))


def _list_left_open(request: WorkloadRequest) -> Iterator[str]:
    """The options that follow the device or the strategy, because the request says nothing of them."""
    if request.precision is None and _infer_precision(request) == DEFAULTS.precision:
        yield "precision"
    stored = (request.weights, request.gradients, request.autocast, request.lora)
    if not request.master_weights and all(each is None for each in stored):
        yield "weights"
    if request.lora is not None and request.weights is None:
        yield "frozen_weights"
    if request.framework is None:
        yield "framework"
    if request.optimizer is None:
        yield "optimizer"
    if request.attention is None:
        yield "attention"


def _step_options(request: WorkloadRequest, has_attention: bool) -> ResolvedOptions:
    has_optimizer = not (request.forward_only or request.no_optimizer)
    precision = precision_of(request)
    weights = request.weights or _usual_weights(request, precision)
    framework = request.framework or DEFAULTS.framework
    is_usual = request.attention is None and not has_attention
    return part(
        ResolvedOptions,
        request,
        precision=precision,
        optimizer=(request.optimizer or DEFAULTS.optimizer) if has_optimizer else None,
        attention=DEFAULTS.attention
        if is_usual
        else usual_attention(request.attention, framework, request.software_year),
        checkpoint_activations=request.checkpoint_activations or request.selective_checkpointing,
        offload=_offload(request),
        weights=weights,
        autocast=True if request.autocast is None and request.lora is not None else request.autocast,
        framework=framework,
    )


def _offload(request: WorkloadRequest) -> tuple[str, ...]:
    """What is offloaded, each once; parameters take the optimizer with them, as in FSDP's `CPUOffload`."""
    names = {name for text in request.offload for name in text.split(",")}
    if "parameters" in names:
        names.add("optimizer")
    unknown = sorted(names - set(OFFLOADS))
    return tuple([name for name in OFFLOADS if name in names] + unknown)


def precision_of(request: StepOptions) -> str:
    """The precision of a request before its devices are known: as given, implied by its weights, or fp32."""
    return request.precision or _infer_precision(request)


def _infer_precision(request: StepOptions) -> str:
    """The precision that weights in half precision imply; else the default, which a device may replace."""
    if request.weights in HALF_PRECISIONS:
        return request.weights
    return "bf16" if request.master_weights else DEFAULTS.precision


def _usual_weights(request: WorkloadRequest, precision: str) -> str:
    """What weights are stored in unless it is given: frozen ones, and those with master copies, in half."""
    if request.lora is not None or request.master_weights:
        return HALF_WEIGHTS.get(precision, DEFAULTS.weights)
    return DEFAULTS.weights


def _lora(request: WorkloadRequest) -> LoraOptions | None:
    if request.lora is None:
        return None
    from foretrain.workloads.lora import parse_lora

    return parse_lora(request.lora)


@dataclass(frozen=True)
class _Entry:
    """A workload under the digest of all its graph depends on: source texts, library versions, options."""

    key: str
    workload: Workload = field(compare=False)


def executed_graph(workload: Workload) -> ExecutedGraph:
    """The step of a workload, recorded and as it runs: from a cache, derived from its family, or traced."""
    return _execute(_Entry(_key(workload, "graph"), workload))


def executed_graph_at(workload: Workload, batch: int) -> ExecutedGraph:
    """The step of a workload at another batch size, as `executed_graph`. The last ones stay in memory."""
    at_batch = workload.at(batch=batch)
    return _execute_at(_Entry(_key(at_batch, "graph"), at_batch))


def graph_of(workload: Workload) -> Graph:
    """The graph of a workload as it runs: with `compile`, and by some frameworks, kernels are fused."""
    return executed_graph(workload).graph


def graph_at(workload: Workload, batch: int) -> Graph:
    """The graph of a workload at another batch size, as `graph_of`."""
    return executed_graph_at(workload, batch).graph


def smallest_batch(workload: Workload) -> int:
    """Samples that a step needs at least: 2 where a model cannot train on one (batch norm of one value)."""
    try:
        executed_graph_at(workload, 1)
    except InvalidRequest:
        return 2
    return 1


def default_batch(workload: Workload) -> int:
    """The batch of the request, or that of the model's own example."""
    shipped = _find_shipped(workload) if workload.sizes.batch is None else None
    if shipped is not None:  # its graph at that batch is not made for this alone
        return shipped.template.counts_at(shipped.sizes)[0]
    return workload.sizes.batch or graph_of(workload).batch


@lru_cache(maxsize=RECENT)
def _execute(entry: _Entry) -> ExecutedGraph:
    shared = _find_recording(entry.workload)
    if shared is not None:
        for twin in shared.workloads:
            graph = executed_graph(twin).source
            if _is_as_kernels_run(graph):
                break
        return ExecutedGraph(at_every_depth(shared.change)(graph))
    cached = cache.find(entry.key)
    if isinstance(cached, Graph):
        return ExecutedGraph(offload_optimizer(cached))
    derived = _derive(entry.workload)
    if derived is not None:
        return derived
    graph = record_workload(entry.workload)
    if _find_shipped(entry.workload) is None:
        cache.keep(entry.key, graph, entry.workload.source.is_kept)
    return ExecutedGraph(offload_optimizer(graph))


@lru_cache(maxsize=RECENT)
def _execute_at(entry: _Entry) -> ExecutedGraph:
    workload = entry.workload
    assert workload.sizes.batch is not None
    if workload.sizes.batch >= BATCHES[0] and not workload.sizes.real:
        recorded = record_family(workload)
        if recorded is not None:
            try:
                return recorded.executed_at({"batch": workload.sizes.batch})
            except NotDerivable:
                pass
    return _execute(entry)


def trace_workload(workload: Workload) -> Graph:
    """The graph of a workload, recorded now and not fused. This is what needs torch."""
    if not has_torch():
        raise MissingData(
            f"foretrain ships no recording of {workload.source.name} with these options and sizes, and "
            "tracing it needs torch: pip install 'foretrain[models]'"
        )
    with phase(f"recording {workload.source.name}"):
        return _trace(workload)


def _trace(workload: Workload) -> Graph:
    from foretrain.workloads.tracing.step import trace

    example = workload.source.example(workload.sizes)
    if workload.lora is not None:
        from foretrain.workloads.lora import apply_lora

        if example.optimizers:
            raise InvalidRequest(
                "a step function has its own networks and optimizers; leave out `lora`, or apply it in the "
                "function"
            )
        example = replace(example, module=apply_lora(example.module, workload.lora))
    if workload.options.forward_only:
        example.module.eval()
    return trace(example, workload.options, with_values=workload.sizes.real)


def record_family(workload: Workload, seq_lens: tuple[int, int] | None = None) -> Family | None:
    """The family of a workload over batch sizes (and over two sequence lengths), kept for later requests.

    None if the graph changes with the size in more than its shapes, so that every size must be traced.
    """
    shared = _find_recording(workload)
    if shared is not None:
        for twin in shared.workloads:
            recorded = record_family(twin, seq_lens)
            if recorded is None or _is_as_kernels_run(recorded.recorded):
                break
        return None if recorded is None else recorded.changed(shared.change)
    axes = (RecordedAxis("batch", *BATCHES), *((RecordedAxis("seq_len", *seq_lens),) if seq_lens else ()))
    entry = _key(workload, "family", seq_lens)
    cached = cache.find(entry)
    if isinstance(cached, Family):
        return cached
    is_shipped = _find_shipped(workload.at(batch=BATCHES[0])) is not None
    values = tuple(itertools.product(BATCHES, seq_lens or (workload.sizes.seq_len,)))

    def record(source: ModelSource) -> Family:
        shipped = _find_shipped(replace(workload, source=source).at(batch=BATCHES[0]))
        if shipped is not None and shipped.has(axes):
            return shipped.family(axes)
        sized = (replace(workload, source=source).at(batch=batch, seq_len=length) for batch, length in values)
        return derive_family(axes, [trace_workload(each) for each in sized])

    try:
        recorded = _from_few_blocks(workload, record, _join) or record(workload.source)
    except (NotDerivable, InvalidRequest):
        return None
    cache.keep(entry, recorded, workload.source.is_kept and not is_shipped)
    return recorded


def _find_shipped(workload: Workload) -> RecordedModel | None:
    """The recording of a workload that ships with the package, if there is one."""
    shape = None if workload.sizes.real else workload.source.shape(workload.sizes)
    return None if shape is None else find_recording(shape, workload.options, workload.lora)


def _join(low: Family, high: Family, extra: int) -> Family:
    deepen(low.recorded, high.recorded, extra)  # raises `NotDerivable` if the two do not fit
    return replace(low, deeper=high, extra=extra)


def record_workload(workload: Workload) -> Graph:
    """The graph of a workload, recorded now; of a model of many equal blocks, only a few are traced."""

    def record(source: ModelSource) -> Graph:
        at_depth = replace(workload, source=source)
        shipped = _find_shipped(at_depth)
        return trace_workload(at_depth) if shipped is None else shipped.graph()

    return _from_few_blocks(workload, record, deepen) or record(workload.source)


def _from_few_blocks(
    workload: Workload,
    record: Callable[[ModelSource], Recorded],
    join: Callable[[Recorded, Recorded, int], Recorded],
) -> Recorded | None:
    """What is recorded of a model, derived from a few of its equal blocks; None if all must be traced."""
    blocks = workload.source.blocks
    if blocks is None or workload.sizes.real or blocks.number < FEW_BLOCKS[1] * MANY * blocks.period:
        return None
    more = blocks.number % blocks.period
    low, high = (record(workload.source.with_blocks(few * blocks.period + more)) for few in FEW_BLOCKS)
    try:
        return join(low, high, blocks.number // blocks.period - FEW_BLOCKS[1])
    except NotDerivable:
        return None


def _derive(workload: Workload) -> ExecutedGraph | None:
    batch = workload.sizes.batch
    if batch is None or batch < BATCHES[0]:
        return None
    recorded = cache.find(_key(workload, "family"))
    if recorded is None and _find_shipped(workload) is not None:
        recorded = record_family(workload)
    if not isinstance(recorded, Family):
        return None
    try:
        return recorded.executed_at({"batch": batch})
    except NotDerivable:
        return None


class _SharedRecording(NamedTuple):
    """Workloads, in order of preference, whose recorded graph another one has too, but for a `change`."""

    workloads: tuple[Workload, ...]
    change: Callable[[Graph], Graph]


def _find_recording(workload: Workload) -> _SharedRecording | None:
    """What a workload is recorded as; None if as itself.

    Tracing takes seconds to minutes, so workloads with the same calls share a recording: FP16 has the calls
    of BF16 on tensors of the same sizes, every scaling of FP8 those of the framework's own, and every fused
    kernel of attention those of PyTorch's. Some models have only eager attention in PyTorch (sinks, capped
    scores) or a mask (windows) though other libraries have kernels for them: they are recorded with one.
    """
    options = workload.options
    if options.precision == "fp16":
        weights = "bf16" if options.weights == "fp16" else options.weights
        gradients = "bf16" if options.gradients == "fp16" else options.gradients
        brain = replace(options, precision="bf16", weights=weights, gradients=gradients)
        return _SharedRecording((replace(workload, options=brain),), _in_fp16)
    if options.fp8_scaling is not None:
        plain = replace(workload, options=replace(options, fp8_scaling=None))
        return _SharedRecording((plain,), partial(with_options, fp8_scaling=options.fp8_scaling))
    if options.attention in ATTENTION_KERNELS:
        picked = replace(options, attention="sdpa")
        sizes = (replace(workload.sizes, attention=kind) for kind in ("sdpa", "flash"))
        twins = tuple(replace(workload, sizes=each, options=picked) for each in sizes)
        return _SharedRecording(twins, partial(with_attention_kernel, workload=workload))
    return None


def _in_fp16(graph: Graph) -> Graph:
    """A graph that was recorded in BF16, in FP16."""
    options = graph.options
    weights = "fp16" if options.weights == "bf16" else options.weights
    gradients = "fp16" if options.gradients == "bf16" else options.gradients
    return replace(
        graph,
        specs=tuple(
            spec._replace(dtype="float16") if spec.dtype == "bfloat16" else spec for spec in graph.specs
        ),
        options=replace(options, precision="fp16", weights=weights, gradients=gradients),
    )


def _is_as_kernels_run(graph: Graph) -> bool:
    """Whether attention is fused, and without a mask: PyTorch's function takes one for a window, where the
    kernels skip what is beyond it."""
    calls = [call for call in graph.calls if call.name == "foretrain.attention"]
    return bool(calls) and not any(call.inputs[_MASK] != NO_TENSOR for call in calls)


def with_attention_kernel(graph: Graph, workload: Workload) -> Graph:
    """A graph that was recorded with PyTorch's choice, with the kernel that a workload names.

    Attention in full precision keeps its kernel, since the others compute in half precision only.
    """
    kernel = ATTENTION_KERNELS[workload.options.attention]
    if not any("attention" in call.name or "bmm" in call.name for call in graph.calls):
        if "attention" in workload.left_open:  # the kernel of a framework or year, which was not asked for
            return graph
        raise InvalidRequest(
            f"{workload.source.name} has no attention of a kind to choose; leave out attention "
            f"{workload.options.attention!r}"
        )
    calls = tuple(
        call._replace(settings={**call.settings, "algorithm": kernel})
        if call.settings.get("algorithm") == "flash"
        else call
        for call in graph.calls
    )
    return replace(graph, calls=calls)


def content_key(workload: Workload) -> str | None:
    """A digest of everything the graph of a workload depends on; None for a module that was handed in."""
    return _key(workload, "graph") if workload.source.is_kept else None


def family_key(workload: Workload) -> str:
    """A digest of everything but the batch that the graph of a workload depends on."""
    return _key(workload, "family")


def _key(workload: Workload, what: str, seq_lens: tuple[int, int] | None = None) -> str:
    sizes = asdict(workload.sizes)
    if what == "family":
        sizes.pop("batch")
        if seq_lens:
            sizes["seq_len"] = seq_lens
    return cache.key(
        what=what,
        source=workload.source.fingerprint(),
        sizes=sizes,
        options=_recorded_options(workload.options),
        inference=workload.options.forward_only,
        lora=None if workload.lora is None else asdict(workload.lora),
    )


@lru_cache(maxsize=RECENT)
def _recorded_options(options: ResolvedOptions) -> dict[str, Any]:
    """The options that a recording depends on."""
    plain = asdict(options)
    del plain["software_year"]  # `attention` has what follows from it
    if plain["fp8_scaling"] is None:
        del plain["fp8_scaling"]
    return plain

"""What Hugging Face models are trained for: one task per auto class, each with its batch and its loss."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch.nn import functional
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.auto import modeling_auto

from foretrain.errors import InvalidData, InvalidRequest, UnknownName
from foretrain.workloads.example import Example
from foretrain.workloads.readers import huggingface_batches as batches
from foretrain.workloads.readers._base import module_on_meta, refuse_size
from foretrain.workloads.tracing.fused import attend_in_window, selective_scan
from foretrain.workloads.tracing.values import KnownValues, tensors_in
from foretrain.workloads.zoo.catalogue import BuildOptions


@dataclass(frozen=True)
class HuggingFaceTask:
    """One kind of training: transformers' table of architectures, its auto class, and how a batch looks.

    `reads` is what the model takes in; `has_decoder` says that a second sequence, the labels, is read by a
    decoder of its own; `loss` is for models that return none.
    """

    name: str
    table: str
    auto: str
    batch: Callable[[Any, BuildOptions], batches.Inputs]
    reads: tuple[str, ...] = ("text",)
    has_decoder: bool = False
    loss: Callable[[Any], torch.Tensor] | None = None

    @property
    def architectures(self) -> Mapping[str, str | tuple[str, ...]]:
        """Class name or names by model_type."""
        return _table(self.table)


def _table(name: str) -> Mapping[str, str | tuple[str, ...]]:
    table: Mapping[str, str | tuple[str, ...]] = getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING_NAMES", {})
    return table


def _mask_loss(output: Any) -> torch.Tensor:
    """Binary cross-entropy of the masks; recipes add a Dice loss, which costs no more than this."""
    masks = output.pred_masks
    return functional.binary_cross_entropy_with_logits(masks, torch.zeros_like(masks))


TASKS = (
    HuggingFaceTask(
        "image and text to text",
        "IMAGE_TEXT_TO_TEXT",
        "AutoModelForImageTextToText",
        batches.image_then_text,
        reads=("text", "images"),
    ),
    HuggingFaceTask(
        "speech recognition",
        "SPEECH_SEQ_2_SEQ",
        "AutoModelForSpeechSeq2Seq",
        batches.spectrograms_to_text,
        has_decoder=True,
    ),
    HuggingFaceTask("speech recognition by CTC", "CTC", "AutoModelForCTC", batches.sound_to_characters),
    HuggingFaceTask(
        "encoder-decoder language modelling",
        "SEQ_TO_SEQ_CAUSAL_LM",
        "AutoModelForSeq2SeqLM",
        batches.tokens_each,
        has_decoder=True,
    ),
    HuggingFaceTask(
        "contrastive learning of images and text",
        "ZERO_SHOT_IMAGE_CLASSIFICATION",
        "AutoModelForZeroShotImageClassification",
        batches.image_text_pairs,
        reads=("text", "images"),
    ),
    HuggingFaceTask(
        "object detection",
        "OBJECT_DETECTION",
        "AutoModelForObjectDetection",
        batches.boxes,
        reads=("images",),
    ),
    HuggingFaceTask(
        "semantic segmentation",
        "SEMANTIC_SEGMENTATION",
        "AutoModelForSemanticSegmentation",
        batches.pixel_classes,
        reads=("images",),
    ),
    HuggingFaceTask(
        "image classification",
        "IMAGE_CLASSIFICATION",
        "AutoModelForImageClassification",
        batches.image_classes,
        reads=("images",),
    ),
    HuggingFaceTask(
        "video classification",
        "VIDEO_CLASSIFICATION",
        "AutoModelForVideoClassification",
        batches.clip_classes,
        reads=("images",),
    ),
    HuggingFaceTask(
        "mask generation",
        "MASK_GENERATION",
        "AutoModelForMaskGeneration",
        batches.point_masks,
        reads=("images",),
        loss=_mask_loss,
    ),
    HuggingFaceTask("masked language modelling", "MASKED_LM", "AutoModelForMaskedLM", batches.tokens_each),
    HuggingFaceTask("causal language modelling", "CAUSAL_LM", "AutoModelForCausalLM", batches.tokens_each),
    HuggingFaceTask(
        "sequence classification",
        "SEQUENCE_CLASSIFICATION",
        "AutoModelForSequenceClassification",
        batches.sequence_classes,
    ),
    HuggingFaceTask(
        "token classification",
        "TOKEN_CLASSIFICATION",
        "AutoModelForTokenClassification",
        batches.token_classes,
    ),
    HuggingFaceTask(
        "question answering", "QUESTION_ANSWERING", "AutoModelForQuestionAnswering", batches.answer_spans
    ),
    HuggingFaceTask(
        "audio classification",
        "AUDIO_CLASSIFICATION",
        "AutoModelForAudioClassification",
        batches.sound_classes,
    ),
)
"""In the order tried for a configuration that names no architecture: what its model_type is known for."""


class Step(torch.nn.Module):
    """A model that takes its inputs by name and returns its loss."""

    def __init__(
        self, model: torch.nn.Module, names: tuple[str, ...], loss: Callable[[Any], Any] | None
    ) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.loss = loss

    def forward(self, *inputs: Any) -> torch.Tensor:
        without_data = next(self.model.parameters()).is_meta
        with contextlib.ExitStack() as entered:
            if without_data:
                entered.enter_context(_as_on_a_gpu())
                entered.enter_context(KnownValues())
            output = self.model(**dict(zip(self.names, inputs, strict=True)))
            loss: torch.Tensor = output.loss if self.loss is None else self.loss(output)
            return loss


def _matching(costs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """An assignment of rows to columns; which one it is changes no shape."""
    number = min(costs.shape)
    return torch.arange(number), torch.arange(number)


_ON_A_GPU: Mapping[str, Callable[..., Any]] = {
    "linear_sum_assignment": _matching,
    "mamba_selective_scan": selective_scan,
}
"""Functions of transformers that read values on the host, or loop where a GPU has a kernel."""


@contextlib.contextmanager
def _as_on_a_gpu() -> Iterator[None]:
    """Replace the functions of `_ON_A_GPU` wherever transformers has imported them."""
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers."):
            scope = vars(module)
            replaced += [(scope, each, scope[each]) for each in _ON_A_GPU if each in scope]
    try:
        for scope, each, _ in replaced:
            scope[each] = _ON_A_GPU[each]
        yield
    finally:
        for scope, each, original in replaced:
            scope[each] = original


def task_of(name: str, config: Mapping[str, Any]) -> HuggingFaceTask:
    """The task of a configuration's architecture.

    Where it names none, or one without a loss or a task here, the first task of its model_type.
    """
    model_type = config["model_type"]
    by_class: dict[str, HuggingFaceTask] = {}
    for task in TASKS:
        for known in _classes(task.architectures, model_type):
            by_class.setdefault(known, task)
    if not by_class:
        names = ", ".join(task.name for task in TASKS)
        raise InvalidRequest(
            f"{name}: models of type {model_type!r} are for none of {names}; write a Python file "
            "whose callable returns the model, its inputs and a loss, and give FILE.py:callable"
        )
    wanted = _architecture(name, config)
    if wanted is None:
        return next(iter(by_class.values()))
    if wanted in by_class:
        return by_class[wanted]
    if wanted in _all_classes(model_type):
        return next(iter(by_class.values()))
    hint = f"Of type {model_type!r} these can be traced: {', '.join(by_class)}."
    raise UnknownName("Hugging Face architecture", wanted, by_class, hint)


def is_of_transformers(config: Mapping[str, Any]) -> bool:
    """Whether transformers itself has the class that a configuration names."""
    known = _all_classes(config["model_type"])
    return bool(known) and all(each in known for each in config.get("architectures") or ())


def _architecture(name: str, config: Mapping[str, Any]) -> str | None:
    """The class that a configuration names first."""
    architectures = config.get("architectures")
    if not architectures:
        return None
    if not isinstance(architectures, list) or not isinstance(architectures[0], str):
        raise InvalidData(name, f"architectures is {architectures!r}, not a list of class names")
    return architectures[0]


def _classes(table: Mapping[str, str | tuple[str, ...]], model_type: str) -> tuple[str, ...]:
    names = table.get(model_type, ())
    return (names,) if isinstance(names, str) else tuple(names)


def _all_classes(model_type: str) -> frozenset[str]:
    """All classes that transformers lists for a model_type."""
    tables = (value for name, value in vars(modeling_auto).items() if name.endswith("_MAPPING_NAMES"))
    return frozenset(known for table in tables for known in _classes(table, model_type))


def build(name: str, entries: Mapping[str, Any], task: HuggingFaceTask, options: BuildOptions) -> Example:
    """The model with its batch and its own loss; weights in full precision, whatever the checkpoint had."""
    for size, read in (("seq_len", "text"), ("image_size", "images")):
        if read not in task.reads:
            refuse_size(name, options, size)
    config = _configure(name, entries, task, options)
    notes = list(_run_all_layers(config))
    auto = getattr(transformers, task.auto)

    def create(kind: str) -> torch.nn.Module:
        model: torch.nn.Module = auto.from_config(config, attn_implementation=kind, dtype=torch.float32)
        return model

    has_window = bool(getattr(config.get_text_config(), "sliding_window", None))
    kernel = _FUSED if options.attention == "flash" and has_window else options.attention
    model = _create(name, create, kernel)
    batch = _batch(name, task, model, options)
    first = next(tensor for tensor in tensors_in(list(batch.values())))
    tokens = sum(value.numel() for key, value in batch.items() if _counts(task, key, value))
    wanted = _architecture(name, entries)
    if wanted is not None and wanted not in _classes(task.architectures, entries["model_type"]):
        notes.append(f"{wanted} has no loss of its own here: it is trained as {type(model).__name__}")
    if any(hasattr(part, "ssm_state_size") for part in model.modules()):
        notes.append("selective scans are priced as the fused kernels of mamba-ssm")
    return Example(
        Step(model, tuple(batch), task.loss),
        tuple(batch.values()),
        None,
        samples=first.shape[0],
        tokens=tokens,
        notes=tuple(notes),
    )


def _batch(name: str, task: HuggingFaceTask, model: torch.nn.Module, options: BuildOptions) -> batches.Inputs:
    """The batch of a task, or what in the configuration does not fit together."""
    try:
        return task.batch(model, options)
    except (RuntimeError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        first = " ".join(str(error).split())
        raise InvalidData(
            name, f"no batch for {task.name} follows from this configuration: {first}"
        ) from error


def _counts(task: HuggingFaceTask, key: str, value: Any) -> bool:
    """Whether an input holds tokens the model reads: the ids, and the decoder's, which are its labels."""
    return key == "input_ids" or (task.has_decoder and key == "labels" and value.dim() == 2)


def _configure(name: str, entries: Mapping[str, Any], task: HuggingFaceTask, options: BuildOptions) -> Any:
    settings = {
        key: value for key, value in entries.items() if key not in ("model_type", "transformers_version")
    }
    try:
        config = transformers.AutoConfig.for_model(entries["model_type"], **settings)
    except (TypeError, ValueError, KeyError, AttributeError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())
        raise InvalidData(name, f"transformers does not take this configuration: {reason}") from error
    text = config.get_text_config()
    text.use_cache = False
    if "text" in task.reads and getattr(text, "pad_token_id", None) is None:
        config.pad_token_id = text.pad_token_id = 0
    if task.has_decoder and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = config.pad_token_id
    if hasattr(config, "use_pretrained_backbone"):
        config.use_pretrained_backbone = False
    vision = batches.vision_part(config)
    if options.image_size is not None and hasattr(vision, "image_size"):
        vision.image_size = options.image_size
    return config


def _run_all_layers(config: Any) -> Iterator[str]:
    """Switch off what skips layers at random, so that the same step is traced every time."""
    for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
        share = getattr(config, name, None)
        if share:
            setattr(config, name, 0.0)
            yield f"all layers run: a {name} of {share:g}, which skips layers at random, is left out"


_FUSED = "foretrain_fused"


def _fused_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *_: Any,
    sliding_window: int | None = None,
    **__: Any,
) -> tuple[torch.Tensor, None]:
    """Fused attention of a model that PyTorch's lacks: sinks, capped scores or a window, by a kernel of its
    own, which does the work of a usual one within the window."""
    is_causal = getattr(module, "is_causal", True)
    if sliding_window:
        attended = attend_in_window(query, key, value, sliding_window, is_causal=is_causal, enable_gqa=True)
    else:
        attended = functional.scaled_dot_product_attention(
            query, key, value, is_causal=is_causal, enable_gqa=True
        )
    return attended.transpose(1, 2).contiguous(), None


ALL_ATTENTION_FUNCTIONS.register(_FUSED, _fused_attention)


def _create(name: str, create: Callable[[str], torch.nn.Module], attention: str) -> torch.nn.Module:
    """The model with PyTorch's attention, or with eager attention where it has only that.

    `flash`: with a fused kernel, too, where PyTorch's does not suit the model.
    """
    kind = attention if attention in ("eager", _FUSED) else "sdpa"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return module_on_meta(partial(create, kind))
    except (RuntimeError, TypeError, ValueError, KeyError, AttributeError, ZeroDivisionError) as error:
        if kind == "sdpa" and "scaled_dot_product_attention" in str(error):
            return _create(name, create, _FUSED if attention == "flash" else "eager")
        if kind == _FUSED:  # a model whose attention cannot be chosen
            return _create(name, create, "eager")
        raise InvalidData(name, f"transformers cannot build this model: {error}") from error

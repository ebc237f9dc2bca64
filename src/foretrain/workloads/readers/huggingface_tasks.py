"""What Hugging Face models are trained for: one task per auto class, each with its batch.

Library models look whether any token is padding, or whether all positions follow one another, and take the
general path if so. A trace has no values to look at. `PlainBatch` answers for a batch of full sequences, each
of them one document: no token is padding, and all positions follow one another.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch.overrides import TorchFunctionMode
from transformers.models.auto import modeling_auto

from foretrain.errors import InvalidData, InvalidRequest, UnknownName
from foretrain.workloads.example import Example
from foretrain.workloads.readers._base import (
    DEFAULT_IMAGE_BATCH,
    DEFAULT_TEXT_BATCH,
    chosen_batch,
    module_on_meta,
    refuse_size,
)
from foretrain.workloads.zoo.catalogue import BuildOptions

_ANSWERS = {"all": True, "any": False}


class PlainBatch(TorchFunctionMode):
    """For tensors without data `bool(x.all())` is True; `bool(x.any())` and `value in x` are False.

    A sum of truth values counts them all, which is how some ask whether all are true.

    Any other look at a value still fails, and the trace says so.
    """

    def __torch_function__(
        self, func: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in {"__bool__", "item"} and hasattr(args[0], "_plain_answer"):
            return args[0]._plain_answer
        if name == "__contains__" and args[0].is_meta:
            return False
        result = func(*args, **(kwargs or {}))
        if name in {"__eq__", "eq"} and hasattr(args[0], "_plain_sum"):
            result._plain_answer = args[0]._plain_sum == args[1]
        if name == "sum" and args[0].dtype is torch.bool and result.is_meta and not result.dim():
            result._plain_sum = args[0].numel()
        if name in _ANSWERS and isinstance(result, torch.Tensor) and result.is_meta and not result.dim():
            result._plain_answer = _ANSWERS[name]  # type: ignore[attr-defined]
        return result


DEFAULT_SEQ_LEN = 512
"""Tokens per sequence by default, or fewer if the model has fewer positions."""
DEFAULT_IMAGE_SIZE = 224
"""Pixels per side where neither the request nor the configuration says."""

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Task:
    """One kind of training: transformers' table of architectures, its auto class, and how a batch looks.

    `has_decoder` says that a second sequence, the labels, is read by a decoder of its own.
    """

    name: str
    table: str
    auto: str
    batch: Callable[[Any, BuildOptions], Inputs]
    reads_images: bool = False
    has_decoder: bool = False

    @property
    def architectures(self) -> Mapping[str, str | tuple[str, ...]]:
        """Class name or names by model_type."""
        table: Mapping[str, str | tuple[str, ...]] = getattr(modeling_auto, self.table)
        return table


def _text_shape(config: Any, options: BuildOptions) -> tuple[int, int]:
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    length = (
        min(DEFAULT_SEQ_LEN, positions or DEFAULT_SEQ_LEN) if options.seq_len is None else options.seq_len
    )
    if length < 1 or (positions and length > positions):
        allowed = f"from 1 to {positions}" if positions else "at least 1"
        raise InvalidRequest(f"seq_len {length} does not fit: it must be {allowed} (max_position_embeddings)")
    return chosen_batch(options, DEFAULT_TEXT_BATCH), length


def _tokens(config: Any, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randint(config.get_text_config().vocab_size, shape)


def _tokens_each(config: Any, options: BuildOptions) -> Inputs:
    """As many labels as tokens."""
    shape = _text_shape(config, options)
    return {"input_ids": _tokens(config, shape), "labels": _tokens(config, shape)}


def _token_sequences(config: Any, options: BuildOptions) -> Inputs:
    """One label for each sequence."""
    shape = _text_shape(config, options)
    return {"input_ids": _tokens(config, shape), "labels": torch.randint(config.num_labels, shape[:1])}


def _images(config: Any, options: BuildOptions) -> Inputs:
    """One label for each image."""
    batch = chosen_batch(options, DEFAULT_IMAGE_BATCH)
    size = getattr(config, "image_size", None) or options.image_size or DEFAULT_IMAGE_SIZE
    height, width = (size, size) if isinstance(size, int) else size
    images = torch.rand(batch, getattr(config, "num_channels", 3), height, width)
    return {"pixel_values": images, "labels": torch.randint(config.num_labels, (batch,))}


TASKS = (
    Task(
        "encoder-decoder language modelling",
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
        "AutoModelForSeq2SeqLM",
        _tokens_each,
        has_decoder=True,
    ),
    Task(
        "image classification",
        "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
        "AutoModelForImageClassification",
        _images,
        reads_images=True,
    ),
    Task(
        "masked language modelling",
        "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
        "AutoModelForMaskedLM",
        _tokens_each,
    ),
    Task(
        "causal language modelling",
        "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
        "AutoModelForCausalLM",
        _tokens_each,
    ),
    Task(
        "sequence classification",
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        "AutoModelForSequenceClassification",
        _token_sequences,
    ),
)
"""In the order tried for a configuration that names no architecture: what its model_type is known for."""


class Step(torch.nn.Module):
    """A model that takes its inputs by name and returns its own loss."""

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        with PlainBatch():
            loss: torch.Tensor = self.model(**dict(zip(self.names, inputs, strict=True))).loss
            return loss


def task_of(name: str, config: Mapping[str, Any]) -> Task:
    """The task of a configuration's architecture; of its model_type where it names none."""
    model_type = config["model_type"]
    by_class: dict[str, Task] = {}
    for task in TASKS:
        for known in _classes(task, model_type):
            by_class.setdefault(known, task)
    if not by_class:
        raise InvalidRequest(f"{name}: models of type {model_type!r} are for none of {_task_names()}")
    architectures = config.get("architectures")
    if not architectures:
        return next(iter(by_class.values()))
    if not isinstance(architectures, list) or not isinstance(architectures[0], str):
        raise InvalidData(name, f"architectures is {architectures!r}, not a list of class names")
    wanted = architectures[0]
    if wanted in by_class:
        return by_class[wanted]
    hint = f"Of type {model_type!r} these can be traced: {', '.join(by_class)}."
    raise UnknownName("Hugging Face architecture", wanted, by_class, hint)


def _classes(task: Task, model_type: str) -> tuple[str, ...]:
    names = task.architectures.get(model_type, ())
    return (names,) if isinstance(names, str) else tuple(names)


def _task_names() -> str:
    return ", ".join(task.name for task in TASKS)


def build(name: str, entries: Mapping[str, Any], task: Task, options: BuildOptions) -> Example:
    """The model with its batch and its own loss; weights in full precision, whatever the checkpoint had."""
    refuse_size(name, options, "seq_len" if task.reads_images else "image_size")
    config = _configured(name, entries, task, options)
    attention = "eager" if options.attention == "eager" else "sdpa"
    auto = getattr(transformers, task.auto)
    with torch.device("meta"):
        batch = task.batch(config, options)

    def create(kind: str) -> torch.nn.Module:
        model: torch.nn.Module = auto.from_config(config, attn_implementation=kind, dtype=torch.float32)
        return model

    model = _created(name, create, attention)
    inputs = tuple(batch.values())
    tokens = sum(value.numel() for key, value in batch.items() if value.dim() == 2 and _counts(task, key))
    return Example(Step(model, tuple(batch)), inputs, None, samples=inputs[0].shape[0], tokens=tokens)


def _counts(task: Task, key: str) -> bool:
    """Whether an input holds tokens the model reads: the ids, and the decoder's, which are its labels."""
    return key == "input_ids" or task.has_decoder


def _configured(name: str, entries: Mapping[str, Any], task: Task, options: BuildOptions) -> Any:
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
    if not task.reads_images and text.pad_token_id is None:
        config.pad_token_id = text.pad_token_id = 0
    if task.has_decoder and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = config.pad_token_id
    if task.reads_images and options.image_size is not None and hasattr(config, "image_size"):
        config.image_size = options.image_size
    return config


def _created(name: str, create: Callable[[str], torch.nn.Module], attention: str) -> torch.nn.Module:
    """The model with this attention, or with eager attention where it has only that."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return module_on_meta(partial(create, attention))
    except (RuntimeError, TypeError, ValueError, KeyError, AttributeError, ZeroDivisionError) as error:
        if "scaled_dot_product_attention" in str(error) and attention != "eager":
            return _created(name, create, "eager")
        raise InvalidData(name, f"transformers cannot build this model: {error}") from error

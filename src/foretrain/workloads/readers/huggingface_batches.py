"""One batch for each sort of Hugging Face model, with shapes from its configuration.

Token ids are real, so that a trace knows which tokens are padding and where an image goes (`KnownValues`);
images, sounds and labels have shapes only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from foretrain.workloads.readers._base import (
    BOXES_PER_IMAGE,
    DEFAULT_IMAGE_BATCH,
    DEFAULT_SEQ_LEN,
    DEFAULT_TEXT_BATCH,
    choose_batch,
)
from foretrain.workloads.readers.huggingface_shapes import text_shape
from foretrain.workloads.zoo.catalogue import BuildOptions

DEFAULT_IMAGE_SIZE = 224
"""Pixels per side where neither the request nor the configuration says."""
DEFAULT_DETECTION_SIZE = 800
"""The same for detection: the shorter side in the recipe of DETR (Carion et al. 2020, arXiv:2005.12872)."""
FRAMES_PER_LABEL = 4
"""Frames of 20 ms for one character: assumed, about 12 characters a second of read English."""
DEFAULT_FRAMES = 16
"""Frames of a video clip where the configuration does not say."""

Inputs = dict[str, Any]


# Text


def tokens_each(model: Any, options: BuildOptions) -> Inputs:
    """As many labels as tokens."""
    shape = _text_shape(model.config, options)
    return {"input_ids": _tokens(model.config, shape), "labels": _tokens(model.config, shape)}


def token_classes(model: Any, options: BuildOptions) -> Inputs:
    """One of the classes for each token."""
    shape = _text_shape(model.config, options)
    return {"input_ids": _tokens(model.config, shape), "labels": _some(shape)}


def sequence_classes(model: Any, options: BuildOptions) -> Inputs:
    """One label for each sequence, which ends as the model expects."""
    shape = _text_shape(model.config, options)
    ids = _tokens(model.config, shape)
    end = getattr(model.config, "eos_token_id", None)
    if isinstance(end, int):
        ids[:, -1] = end
    return {"input_ids": ids, "labels": _some(shape[:1])}


def answer_spans(model: Any, options: BuildOptions) -> Inputs:
    """The first and the last token of an answer in each sequence."""
    shape = _text_shape(model.config, options)
    return {
        "input_ids": _tokens(model.config, shape),
        "start_positions": _some(shape[:1]),
        "end_positions": _some(shape[:1]),
    }


def _text_shape(config: Any, options: BuildOptions, before: int = 0) -> tuple[int, int]:
    """Sequences and tokens in each; `before` come first by default, such as those of an image."""
    return text_shape(_positions(config), options, before)


def _positions(config: Any) -> int | None:
    text = config.get_text_config()
    for name in ("max_target_positions", "max_position_embeddings"):
        value = getattr(text, name, None)
        if isinstance(value, int):
            return value
    return None


def _tokens(config: Any, shape: tuple[int, ...]) -> torch.Tensor:
    """Ids of ordinary words: the first id that no part of the configuration gives a meaning of its own."""
    special = {value for value in _token_ids(config) if isinstance(value, int)}
    vocabulary = config.get_text_config().vocab_size
    ordinary = next((number for number in range(vocabulary) if number not in special), 0)
    return torch.full(shape, ordinary)


def _token_ids(config: Any) -> Iterator[Any]:
    for part in (config, config.get_text_config()):
        for name, value in vars(part).items():
            if name.endswith(("_token_id", "_token_index")):
                yield from value if isinstance(value, list | tuple) else (value,)


def _some(shape: tuple[int, ...]) -> torch.Tensor:
    """Whole numbers whose values the host never reads."""
    return torch.empty(shape, dtype=torch.int64, device="meta")


# Images


def image_classes(model: Any, options: BuildOptions) -> Inputs:
    """One label for each image."""
    images = _images(model.config, options)
    return {"pixel_values": images, "labels": _some((images.shape[0],))}


def pixel_classes(model: Any, options: BuildOptions) -> Inputs:
    """One label for each pixel."""
    images = _images(model.config, options)
    return {"pixel_values": images, "labels": _some((images.shape[0], *images.shape[2:]))}


def clip_classes(model: Any, options: BuildOptions) -> Inputs:
    """One label for each video clip."""
    images = _images(model.config, options)
    batch, *pixels = images.shape
    frames = getattr(model.config, "num_frames", DEFAULT_FRAMES)
    return {"pixel_values": images.new_empty((batch, frames, *pixels)), "labels": _some((batch,))}


def boxes(model: Any, options: BuildOptions) -> Inputs:
    """Boxes with a class each in every image."""
    images = _images(model.config, options, DEFAULT_DETECTION_SIZE, DEFAULT_TEXT_BATCH)
    number = min(BOXES_PER_IMAGE, getattr(model.config, "num_queries", BOXES_PER_IMAGE))
    labels = [
        {"class_labels": _some((number,)), "boxes": torch.empty((number, 4), device="meta")}
        for _ in range(images.shape[0])
    ]
    return {"pixel_values": images, "labels": labels}


def point_masks(model: Any, options: BuildOptions) -> Inputs:
    """One point in each image, of which the mask is asked."""
    images = _images(model.config, options, batch=DEFAULT_TEXT_BATCH)
    points = torch.empty((images.shape[0], 1, 1, 2), device="meta")
    return {"pixel_values": images, "input_points": points}


def _images(
    config: Any, options: BuildOptions, size: int = DEFAULT_IMAGE_SIZE, batch: int = DEFAULT_IMAGE_BATCH
) -> torch.Tensor:
    vision = vision_part(config)
    sides = getattr(vision, "image_size", None) or options.image_size or size
    height, width = (sides, sides) if isinstance(sides, int) else sides
    channels = getattr(vision, "num_channels", None) or getattr(vision, "in_channels", None) or 3
    return torch.empty((choose_batch(options, batch), channels, height, width), device="meta")


def vision_part(config: Any) -> Any:
    """The part of a configuration that describes images: itself where it has no other."""
    return getattr(config, "vision_config", None) or config


# Images and text


def image_text_pairs(model: Any, options: BuildOptions) -> Inputs:
    """Images and their captions: each pair is contrasted with all other pairs of the batch."""
    images = _images(model.config, options)
    _, length = _text_shape(model.config, options)
    ids = _tokens(model.config, (images.shape[0], length))
    return {"input_ids": ids, "pixel_values": images, "return_loss": True}


def image_then_text(model: Any, options: BuildOptions) -> Inputs:
    """An image in front of the text, which is predicted token by token.

    As many tokens stand for the image as the model makes features of it; `seq_len` counts them too.
    """
    config = model.config
    batch = choose_batch(options, DEFAULT_TEXT_BATCH)
    vision: Inputs
    if hasattr(vision_part(config), "spatial_merge_size"):
        vision, per_image = _patches(config, options, batch)
    else:
        images = _images(config, options, batch=DEFAULT_TEXT_BATCH)
        vision, per_image = {"pixel_values": images}, _features(model, images)
    shape = _text_shape(config, options, per_image)
    ids = _tokens(config, shape)
    image_token = _image_token(config)
    if per_image and image_token is not None:
        ids[:, :per_image] = image_token
    kinds = torch.zeros(shape, dtype=torch.int64)
    kinds[:, :per_image] = 1
    inputs = {"input_ids": ids, "attention_mask": torch.ones(shape, dtype=torch.int64), **vision}
    takes = _parameters(model)
    for name in ("token_type_ids", "mm_token_type_ids"):
        if name in takes:
            inputs[name] = kinds
    return {**inputs, "labels": _tokens(config, shape)}


def _features(model: Any, images: torch.Tensor) -> int:
    """Tokens that one image becomes; 0 where the text attends to the image instead."""
    if not hasattr(model, "get_image_features") or _image_token(model.config) is None:
        return 0
    device = next(model.parameters()).device
    with torch.no_grad():
        output = model.get_image_features(
            pixel_values=torch.zeros(images.shape, device=device), return_dict=True
        )
    features = output.pooler_output
    whole = features if isinstance(features, torch.Tensor) else torch.cat(list(features))
    return int(whole.numel() // (whole.shape[-1] * images.shape[0]))


def _image_token(config: Any) -> int | None:
    """The id of the token in whose places the features of an image are put."""
    given = (getattr(config, name, None) for name in ("image_token_id", "image_token_index"))
    return next((each for each in given if isinstance(each, int)), None)


def _patches(config: Any, options: BuildOptions, batch: int) -> tuple[Inputs, int]:
    """Images as rows of patches with a grid each (Qwen2-VL): patches, and tokens of an image."""
    vision = vision_part(config)
    merged = vision.spatial_merge_size
    side = max(1, round((options.image_size or DEFAULT_IMAGE_SIZE) / vision.patch_size / merged)) * merged
    channels = getattr(vision, "in_channels", None) or getattr(vision, "in_chans", None) or 3
    width = channels * getattr(vision, "temporal_patch_size", 1) * vision.patch_size**2
    patches = torch.empty((batch * side * side, width), device="meta")
    grids = torch.tensor([[1, side, side]] * batch)
    return {"pixel_values": patches, "image_grid_thw": grids}, side * side // merged**2


def _parameters(model: Any) -> frozenset[str]:
    import inspect

    return frozenset(inspect.signature(model.forward).parameters)


# Sound


def spectrograms_to_text(model: Any, options: BuildOptions) -> Inputs:
    """A spectrogram of the length that the encoder takes, and its transcript."""
    batch, length = _text_shape(model.config, options)
    bands = getattr(model.config, "num_mel_bins", None) or model.config.input_feat_per_channel
    stride = math.prod(getattr(model.config, "conv_strides", None) or (2,))
    if hasattr(model.config, "num_conv_layers"):
        stride = 2**model.config.num_conv_layers
        shape = (batch, model.config.max_source_positions, bands)
    else:
        shape = (batch, bands, stride * model.config.max_source_positions)
    labels = _tokens(model.config, (batch, length))
    return {"input_features": torch.empty(shape, device="meta"), "labels": labels}


def sound_to_characters(model: Any, options: BuildOptions) -> Inputs:
    """Sound of `seq_len` frames behind the feature extractor, and a transcript without alignment."""
    sounds = _sounds(model.config, options)
    length = max(1, (options.seq_len or DEFAULT_SEQ_LEN) // FRAMES_PER_LABEL)
    return {"input_values": sounds, "labels": _tokens(model.config, (sounds.shape[0], length))}


def sound_classes(model: Any, options: BuildOptions) -> Inputs:
    """One label for each recording."""
    if "input_features" in _parameters(model):
        features = spectrograms_to_text(model, options)["input_features"]
        return {"input_features": features, "labels": _some((features.shape[0],))}
    sounds = _sounds(model.config, options)
    return {"input_values": sounds, "labels": _some((sounds.shape[0],))}


def _sounds(config: Any, options: BuildOptions) -> torch.Tensor:
    """Waveforms that the convolutions of the feature extractor turn into `seq_len` frames."""
    samples = options.seq_len or DEFAULT_SEQ_LEN
    for kernel, stride in reversed(list(zip(config.conv_kernel, config.conv_stride, strict=True))):
        samples = (samples - 1) * stride + kernel
    return torch.empty((choose_batch(options, DEFAULT_TEXT_BATCH), samples), device="meta")

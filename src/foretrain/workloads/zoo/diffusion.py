"""Diffusion of latent images: the U-Net of Stable Diffusion XL, and the transformers of SD 3 and FLUX.1.

The denoiser alone is trained: latents (an eighth of the image in each direction) and the encoded text come
ready, as scripts of fine-tuning prepare them. `image_size` counts pixels, `seq_len` tokens of the text.

SDXL. Podell et al., arXiv:2307.01952: residual convolutions, and transformers at the lower resolutions.

SD 3. Esser et al., arXiv:2403.03206: image and text have weights of their own and attend to both together
(MMDiT). Every norm is scaled and shifted by the time and the pooled text.

FLUX.1, as Black Forest Labs published it in the repository black-forest-labs/flux: the same with rotary
positions, then blocks in which both share their weights and attention runs beside the perceptron.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import AttentionKind, Sizes
from foretrain.workloads.zoo.layers import Attention, CastingRMSNorm, FeedForward, Rotary, rotate

_PIXELS_PER_LATENT = 8
_FREQUENCIES = 256
"""Of the sinusoids of a time, or of any other number that conditions a model."""
_LONGEST_WAVE = 10_000.0


def sinusoid(numbers: Tensor, width: int) -> Tensor:
    """cos and sin of each number at `width` / 2 frequencies."""
    half = width // 2
    index = torch.arange(half, device=numbers.device, dtype=torch.float32)
    angles = numbers.float().unsqueeze(-1) * torch.exp(-math.log(_LONGEST_WAVE) * index / half)
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def _embedder(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width))


def _example(module: nn.Module, inputs: Sequence[Tensor], sizes: Sizes) -> Example:
    """The mean squared error of the predicted noise (or velocity) of the latents, the first input."""
    noise = torch.rand_like(inputs[0])

    def loss(predicted: Tensor) -> Tensor:
        return functional.mse_loss(predicted.float(), noise)

    return Example(module.train(), tuple(inputs), loss, samples=sizes.batch)


# Stable Diffusion XL

_NORM_GROUPS = 32
_TIME_IDS = 6
"""Original size, crop and target size of an image, which condition SDXL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UNetConfig:
    """The architecture: `widths` and `transformers` (blocks in each transformer, 0 for none) by level."""

    widths: Sequence[int]
    transformers: Sequence[int]
    blocks: int
    head_width: int
    text_width: int
    pooled_width: int
    channels: int = 4


class TimedResidual(nn.Module):
    """Two convolutions with the embedded time between them, and a shortcut."""

    def __init__(self, inputs: int, outputs: int, time_width: int) -> None:
        super().__init__()
        self.first_norm = nn.GroupNorm(_NORM_GROUPS, inputs)
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time_width, outputs)
        self.second_norm = nn.GroupNorm(_NORM_GROUPS, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        inner = self.first(functional.silu(self.first_norm(x)))
        inner = inner + self.time(functional.silu(time))[:, :, None, None]
        output: Tensor = self.shortcut(x) + self.second(functional.silu(self.second_norm(inner)))
        return output


class GatedGelu(nn.Module):
    """down(a · gelu(b)), with a and b by one product. Shazeer, arXiv:2002.05202."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 8 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.up(x).chunk(2, dim=-1)
        output: Tensor = self.down(value * functional.gelu(gate))
        return output


class TextConditionedBlock(nn.Module):
    """Attention of the image to itself and to the text, and a gated perceptron."""

    def __init__(self, config: UNetConfig, width: int, kind: AttentionKind) -> None:
        super().__init__()
        heads = width // config.head_width
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.attention = Attention(width, heads, kind=kind, input_bias=False)
        self.cross_attention = Attention(
            width, heads, kind=kind, input_bias=False, memory_width=config.text_width
        )
        self.feed_forward = GatedGelu(width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        x = x + self.cross_attention(self.norms[1](x), memory=text)
        output: Tensor = x + self.feed_forward(self.norms[2](x))
        return output


class ImageTransformer(nn.Module):
    """A transformer over the pixels of a feature map."""

    def __init__(self, config: UNetConfig, width: int, blocks: int, kind: AttentionKind) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(_NORM_GROUPS, width, eps=1e-6)
        self.first = nn.Linear(width, width)
        self.blocks = nn.ModuleList(TextConditionedBlock(config, width, kind) for _ in range(blocks))
        self.last = nn.Linear(width, width)

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        height = image.size(2)
        x = self.first(self.norm(image).flatten(2).transpose(1, 2))
        for block in self.blocks:
            x = block(x, text)
        output: Tensor = self.last(x).transpose(1, 2).unflatten(2, (height, -1))
        return output + image


class Level(nn.Module):
    """Residual blocks at one resolution, each with a transformer behind it if there is one."""

    def __init__(self, pairs: Sequence[tuple[int, int]], config: UNetConfig, depth: int, kind: AttentionKind):
        super().__init__()
        time_width = 4 * config.widths[0]
        self.residuals = nn.ModuleList(TimedResidual(*pair, time_width) for pair in pairs)
        self.transformers = nn.ModuleList(
            ImageTransformer(config, width, depth, kind) for _, width in pairs if depth
        )

    def forward(self, x: Tensor, time: Tensor, text: Tensor, skips: list[Tensor], *, is_up: bool) -> Tensor:
        """Downwards every result is kept among `skips`, upwards each block reads one of them."""
        for place, residual in enumerate(self.residuals):
            x = residual(torch.cat((x, skips.pop()), dim=1) if is_up else x, time)
            if place < len(self.transformers):
                x = self.transformers[place](x, text)
            if not is_up:
                skips.append(x)
        return x


class DiffusionUNet(nn.Module):
    """Levels that halve the resolution, a middle, and levels that double it, joined by concatenation."""

    def __init__(self, config: UNetConfig, kind: AttentionKind) -> None:
        super().__init__()
        widths, time_width = config.widths, 4 * config.widths[0]
        self.time = _embedder(widths[0], time_width)
        self.condition = _embedder(config.pooled_width + _TIME_IDS * _FREQUENCIES, time_width)
        self.first = nn.Conv2d(config.channels, widths[0], 3, padding=1)
        skips, inputs = [widths[0]], widths[0]
        self.down = nn.ModuleList()
        for width, depth in zip(widths, config.transformers, strict=True):
            pairs = [(inputs, width), *((width, width) for _ in range(config.blocks - 1))]
            self.down.append(Level(pairs, config, depth, kind))
            skips += [width] * (config.blocks + (width != widths[-1]))
            inputs = width
        self.narrowing = nn.ModuleList(
            nn.Conv2d(width, width, 3, stride=2, padding=1) for width in widths[:-1]
        )
        self.middle = Level([(inputs, inputs)], config, config.transformers[-1], kind)
        self.middle_last = TimedResidual(inputs, inputs, time_width)
        self.up = nn.ModuleList()
        for width, depth in reversed(list(zip(widths, config.transformers, strict=True))):
            pairs = []
            for _ in range(config.blocks + 1):
                pairs.append((inputs + skips.pop(), width))
                inputs = width
            self.up.append(Level(pairs, config, depth, kind))
        self.widening = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for width in reversed(widths[1:]))
        self.norm = nn.GroupNorm(_NORM_GROUPS, widths[0])
        self.last = nn.Conv2d(widths[0], config.channels, 3, padding=1)

    def forward(
        self, latents: Tensor, time: Tensor, text: Tensor, pooled: Tensor, image_ids: Tensor
    ) -> Tensor:
        ids = sinusoid(image_ids, _FREQUENCIES).flatten(1)
        condition = self.condition(torch.cat((pooled, ids.to(pooled.dtype)), dim=-1))
        embedded = self.time(sinusoid(time, self.first.out_channels).to(latents.dtype)) + condition
        x = self.first(latents)
        skips = [x]
        for number, level in enumerate(self.down):
            x = level(x, embedded, text, skips, is_up=False)
            if number < len(self.narrowing):
                x = self.narrowing[number](x)
                skips.append(x)
        x = self.middle_last(self.middle(x, embedded, text, [], is_up=False), embedded)
        for number, level in enumerate(self.up):
            x = level(x, embedded, text, skips, is_up=True)
            if number < len(self.widening):
                x = self.widening[number](functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        noise: Tensor = self.last(functional.silu(self.norm(x)))
        return noise


def diffusion_unet(sizes: Sizes, **config: object) -> Example:
    """The U-Net of Stable Diffusion XL; `config` holds the fields of `UNetConfig`."""
    settings = UNetConfig(**config)  # type: ignore[arg-type]
    side = sizes.image_size // _PIXELS_PER_LATENT
    inputs = (
        torch.rand(sizes.batch, settings.channels, side, side),
        torch.randint(1000, (sizes.batch,)),
        torch.rand(sizes.batch, sizes.seq_len, settings.text_width),
        torch.rand(sizes.batch, settings.pooled_width),
        torch.rand(sizes.batch, _TIME_IDS),
    )
    return _example(DiffusionUNet(settings, sizes.attention), inputs, sizes)


# Diffusion transformers

_PATCH = 2
_LATENT_CHANNELS = 16
_PIXELS_PER_PATCH = _PATCH * _PIXELS_PER_LATENT
_PATCH_VALUES = _PATCH**2 * _LATENT_CHANNELS


class Modulation(nn.Module):
    """Shifts, scales and gates of a block: `count` vectors by one product of the condition."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.linear = nn.Linear(width, count * width)

    def forward(self, condition: Tensor) -> tuple[Tensor, ...]:
        vectors: Tensor = self.linear(functional.silu(condition))
        return vectors.unsqueeze(1).chunk(self.count, dim=-1)


class ModulatedNorm(nn.LayerNorm):
    """A norm without weights of its own, then (1 + scale) · x + shift."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=1e-6, elementwise_affine=False)

    def forward(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x) * (1 + scale) + shift


class JointAttention(nn.Module):
    """Attention of image and text together, each with projections of its own.

    Without `text_output` what the text has gathered is not used, as in the last block.
    """

    def __init__(
        self, width: int, heads: int, kind: AttentionKind, *, head_norm: bool, text_output: bool
    ) -> None:
        super().__init__()
        self.image = _HeadProjection(width, heads, head_norm=head_norm)
        self.text = _HeadProjection(width, heads, head_norm=head_norm)
        self.image_output = nn.Linear(width, width)
        self.text_output = nn.Linear(width, width) if text_output else None
        self.kind: AttentionKind = kind

    def forward(self, image: Tensor, text: Tensor, rotary: Rotary | None) -> tuple[Tensor, Tensor | None]:
        of_text, of_image = self.text(text), self.image(image)
        query, key, value = (torch.cat(pair, dim=2) for pair in zip(of_text, of_image, strict=True))
        if rotary is not None:
            query, key = rotate(query, rotary), rotate(key, rotary)
        attended = _attend(query, key, value, self.kind)
        to_text, to_image = attended.split((text.size(1), image.size(1)), dim=1)
        return self.image_output(to_image), None if self.text_output is None else self.text_output(to_text)


def _attend(query: Tensor, key: Tensor, value: Tensor, kind: AttentionKind) -> Tensor:
    """Attention by heads; (batch, tokens, width) of all heads together."""
    if kind == "eager":
        scores = query @ key.transpose(-2, -1) * query.size(-1) ** -0.5
        attended: Tensor = scores.softmax(dim=-1) @ value
    else:
        attended = functional.scaled_dot_product_attention(query, key, value)
    return attended.transpose(1, 2).flatten(2)


class _HeadProjection(nn.Module):
    """Queries, keys and values by head, with a norm of queries and keys if asked."""

    def __init__(self, width: int, heads: int, *, head_norm: bool) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.query_norm = CastingRMSNorm(width // heads, eps=1e-6) if head_norm else None
        self.key_norm = CastingRMSNorm(width // heads, eps=1e-6) if head_norm else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = (
            each(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        return query, key, value


class JointBlock(nn.Module):
    """Joint attention and a perceptron for image and text each, both modulated.

    In the last block of SD 3 the text is `read_only`: it is attended to and then dropped.
    """

    def __init__(
        self, width: int, heads: int, kind: AttentionKind, *, head_norm: bool, read_only: bool = False
    ) -> None:
        super().__init__()
        self.read_only = read_only
        self.modulate_image = Modulation(width, 6)
        self.modulate_text = Modulation(width, 2 if read_only else 6)
        self.norm = ModulatedNorm(width)
        self.attention = JointAttention(width, heads, kind, head_norm=head_norm, text_output=not read_only)
        self.image_feed_forward = FeedForward(width, 4 * width, "gelu-tanh")
        self.text_feed_forward = None if read_only else FeedForward(width, 4 * width, "gelu-tanh")

    def forward(
        self, image: Tensor, text: Tensor, condition: Tensor, rotary: Rotary | None = None
    ) -> tuple[Tensor, Tensor]:
        shift, scale, gate, *rest = self.modulate_image(condition)
        text_shift, text_scale, *text_rest = self.modulate_text(condition)
        to_image, to_text = self.attention(
            self.norm(image, shift, scale), self.norm(text, text_shift, text_scale), rotary
        )
        image = image + gate * to_image
        image = image + rest[2] * self.image_feed_forward(self.norm(image, rest[0], rest[1]))
        if to_text is not None and self.text_feed_forward is not None:
            text_gate, second_shift, second_scale, second_gate = text_rest
            text = text + text_gate * to_text
            text = text + second_gate * self.text_feed_forward(self.norm(text, second_shift, second_scale))
        return image, text


class Mmdit(nn.Module):
    """Stable Diffusion 3: patches of the latents with fixed positions, joint blocks, and back to patches."""

    def __init__(
        self, layers: int, width: int, heads: int, text_width: int, pooled_width: int, kind: AttentionKind
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(_LATENT_CHANNELS, width, _PATCH, stride=_PATCH)
        self.time = _embedder(_FREQUENCIES, width)
        self.pooled = _embedder(pooled_width, width)
        self.text = nn.Linear(text_width, width)
        self.blocks = nn.ModuleList(
            JointBlock(width, heads, kind, head_norm=False, read_only=layer == layers - 1)
            for layer in range(layers)
        )
        self.modulate = Modulation(width, 2)
        self.norm = ModulatedNorm(width)
        self.last = nn.Linear(width, _PATCH_VALUES)

    def forward(
        self, latents: Tensor, time: Tensor, text: Tensor, pooled: Tensor, positions: Tensor
    ) -> Tensor:
        x = self.patches(latents)
        height = x.size(2)
        image = x.flatten(2).transpose(1, 2) + positions
        condition = self.time(sinusoid(time, _FREQUENCIES).to(pooled.dtype)) + self.pooled(pooled)
        text = self.text(text)
        for block in self.blocks:
            image, text = block(image, text, condition)
        shift, scale = self.modulate(condition)
        patches = self.last(self.norm(image, shift, scale)).unflatten(1, (height, -1))
        by_pixel: Tensor = patches.unflatten(-1, (_PATCH, _PATCH, -1)).permute(0, 5, 1, 3, 2, 4)
        return by_pixel.flatten(4, 5).flatten(2, 3)


def mmdit(
    sizes: Sizes, *, layers: int, width: int, heads: int, text_width: int, pooled_width: int
) -> Example:
    """The transformer of Stable Diffusion 3."""
    side = sizes.image_size // _PIXELS_PER_LATENT
    inputs = (
        torch.rand(sizes.batch, _LATENT_CHANNELS, side, side),
        torch.rand(sizes.batch),
        torch.rand(sizes.batch, sizes.seq_len, text_width),
        torch.rand(sizes.batch, pooled_width),
        torch.rand(1, (sizes.image_size // _PIXELS_PER_PATCH) ** 2, width),
    )
    module = Mmdit(layers, width, heads, text_width, pooled_width, sizes.attention)
    return _example(module, inputs, sizes)


class SingleBlock(nn.Module):
    """Attention beside the perceptron, of image and text in one sequence, joined by one product."""

    def __init__(self, width: int, heads: int, kind: AttentionKind) -> None:
        super().__init__()
        self.kind: AttentionKind = kind
        self.modulate = Modulation(width, 3)
        self.norm = ModulatedNorm(width)
        self.attention = _HeadProjection(width, heads, head_norm=True)
        self.up = nn.Linear(width, 4 * width)
        self.output = nn.Linear(5 * width, width)

    def forward(self, x: Tensor, condition: Tensor, rotary: Rotary) -> Tensor:
        shift, scale, gate = self.modulate(condition)
        inner = self.norm(x, shift, scale)
        query, key, value = self.attention(inner)
        attended = _attend(rotate(query, rotary), rotate(key, rotary), value, self.kind)
        hidden = functional.gelu(self.up(inner), approximate="tanh")
        output: Tensor = x + gate * self.output(torch.cat((attended, hidden), dim=-1))
        return output


class SingleBlocks(nn.ModuleList):
    """Single blocks, one after another."""

    def forward(self, x: Tensor, condition: Tensor, rotary: Rotary) -> Tensor:
        for block in self:
            x = block(x, condition, rotary)
        return x


_SINGLE_PER_JOINT = 2
"""FLUX.1 has twice as many single blocks as joint ones."""
_AXIS_SHARES = (1 / 8, 9 / 16)
"""Of a head the first eighth turns by the kind of token, the rest by its row and column in equal parts."""


class Flux(nn.Module):
    """FLUX.1: packed latents, joint blocks, then pairs of single blocks."""

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        text_width: int,
        pooled_width: int,
        kind: AttentionKind,
        *,
        guided: bool,
    ) -> None:
        super().__init__()
        self.head_width = width // heads
        self.image = nn.Linear(_PATCH_VALUES, width)
        self.text = nn.Linear(text_width, width)
        self.time = _embedder(_FREQUENCIES, width)
        self.guidance = _embedder(_FREQUENCIES, width) if guided else None
        self.pooled = _embedder(pooled_width, width)
        self.joint = nn.ModuleList(JointBlock(width, heads, kind, head_norm=True) for _ in range(layers))
        self.single = nn.ModuleList(
            SingleBlocks(SingleBlock(width, heads, kind) for _ in range(_SINGLE_PER_JOINT))
            for _ in range(layers)
        )
        self.modulate = Modulation(width, 2)
        self.norm = ModulatedNorm(width)
        self.last = nn.Linear(width, _PATCH_VALUES)

    def forward(
        self,
        latents: Tensor,
        time: Tensor,
        text: Tensor,
        pooled: Tensor,
        positions: Tensor,
        guidance: Tensor | None = None,
    ) -> Tensor:
        condition = self.time(sinusoid(time, _FREQUENCIES).to(pooled.dtype)) + self.pooled(pooled)
        if self.guidance is not None and guidance is not None:
            condition = condition + self.guidance(sinusoid(guidance, _FREQUENCIES).to(pooled.dtype))
        image, words = self.image(latents), self.text(text)
        rotary = self._angles(positions, image)
        for block in self.joint:
            image, words = block(image, words, condition, rotary)
        x = torch.cat((words, image), dim=1)
        for blocks in self.single:
            x = blocks(x, condition, rotary)
        shift, scale = self.modulate(condition)
        output: Tensor = self.last(self.norm(x[:, words.size(1) :], shift, scale))
        return output

    def _angles(self, positions: Tensor, like: Tensor) -> Rotary:
        """cos and sin of each channel's position times its frequency, (tokens, head width)."""
        half = self.head_width // 2
        starts = (0, *(round(share * half) for share in _AXIS_SHARES), half)
        axis, power = [], []
        for number in range(3):
            length = starts[number + 1] - starts[number]
            axis += [number] * length
            power += [place / length for place in range(length)]
        frequency = _LONGEST_WAVE ** -torch.tensor(power, device=positions.device)
        angles = positions[:, torch.tensor(axis, device=positions.device)] * frequency
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def flux(
    sizes: Sizes,
    *,
    layers: int,
    width: int,
    heads: int,
    text_width: int,
    pooled_width: int,
    guided: bool = True,
) -> Example:
    """The transformer of FLUX.1: `layers` joint blocks and twice as many single ones."""
    tokens = (sizes.image_size // _PIXELS_PER_PATCH) ** 2
    inputs = (
        torch.rand(sizes.batch, tokens, _PATCH_VALUES),
        torch.rand(sizes.batch),
        torch.rand(sizes.batch, sizes.seq_len, text_width),
        torch.rand(sizes.batch, pooled_width),
        torch.rand(sizes.seq_len + tokens, 3),
        *((torch.rand(sizes.batch),) if guided else ()),
    )
    module = Flux(layers, width, heads, text_width, pooled_width, sizes.attention, guided=guided)
    return _example(module, inputs, sizes)

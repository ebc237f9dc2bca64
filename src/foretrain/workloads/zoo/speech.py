"""Speech: Whisper, DeepSpeech 2, and recognisers of spoken digits.

Whisper: an encoder of log-mel spectrograms of 30 s and a decoder of text. Radford et al., arXiv:2212.04356.
Spectrograms always have 3,000 frames, shorter sound is padded; `seq_len` counts text tokens.

DeepSpeech 2: convolutions over a spectrogram, bidirectional GRUs, CTC. Amodei et al., arXiv:1512.02595.

The layout of its common torch implementation: the two directions are summed, and a batch norm over time and
batch stands before each recurrent layer but the first. `seq_len` counts spectrogram frames, 10 ms each.

Two networks that recognise a spoken digit in 1.5 s of sound, sampled at 8 kHz.

From "Multi-GPU Neural Network Training in the Cloud"; the printed layer tables fix every shape, the paddings
included: half a kernel on each side, so that an even kernel adds one sample (12000 to 12001).
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example, Loss
from foretrain.workloads.tracing.fused import ensure_shapes
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.layers import Attention, Block, FeedForward
from foretrain.workloads.zoo.tasks import cross_entropy

_FREQUENCIES = 161
_CHANNELS = 32
_REDUCED_FREQUENCIES = 41
_FRAMES_PER_CHARACTER = 7
_BLANK = 0
_MEAN = 1  # torch's number for the mean over the batch


class FrameNorm(nn.Module):
    """Batch norm of (time, batch, features) over time and batch together."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.norm(x.flatten(0, 1))
        return output.view_as(x)


class SummedGRU(nn.Module):
    """A bidirectional GRU whose directions are added, with a norm before it if asked."""

    def __init__(self, inputs: int, width: int, *, normed: bool) -> None:
        super().__init__()
        self.norm = FrameNorm(inputs) if normed else nn.Identity()
        self.gru = nn.GRU(inputs, width, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        both, _ = self.gru(self.norm(x))
        summed: Tensor = both.unflatten(-1, (2, -1)).sum(dim=-2)
        return summed


class DeepSpeech2(nn.Module):
    """(batch, 1, frequencies, frames) to logits of (frames / 2, batch, characters)."""

    def __init__(self, width: int, layers: int, characters: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, _CHANNELS, (41, 11), stride=(2, 2), padding=(20, 5)),
            nn.BatchNorm2d(_CHANNELS),
            nn.Hardtanh(0, 20, inplace=True),
            nn.Conv2d(_CHANNELS, _CHANNELS, (21, 11), stride=(2, 1), padding=(10, 5)),
            nn.BatchNorm2d(_CHANNELS),
            nn.Hardtanh(0, 20, inplace=True),
        )
        features = _CHANNELS * _REDUCED_FREQUENCIES
        self.recurrent = nn.Sequential(
            *(
                SummedGRU(features if layer == 0 else width, width, normed=layer > 0)
                for layer in range(layers)
            )
        )
        self.output = nn.Sequential(FrameNorm(width), nn.Linear(width, characters, bias=False))

    def forward(self, spectrogram: Tensor) -> Tensor:
        features = self.convolutions(spectrogram).flatten(1, 2).permute(2, 0, 1).contiguous()
        logits: Tensor = self.output(self.recurrent(features))
        return logits


def deepspeech2(sizes: Sizes, *, width: int, layers: int, characters: int) -> Example:
    """DeepSpeech 2 with spectrograms and transcripts of about 14 characters a second."""
    ensure_shapes()
    spectrograms = torch.rand(sizes.batch, 1, _FREQUENCIES, sizes.seq_len)
    length = max(1, sizes.seq_len // _FRAMES_PER_CHARACTER)
    loss = _ctc(torch.randint(1, characters, (sizes.batch, length)))
    return Example(DeepSpeech2(width, layers, characters).train(), (spectrograms,), loss, samples=sizes.batch)


def _ctc(transcripts: Tensor) -> Loss:
    """Connectionist temporal classification, character 0 being the blank. Graves et al., ICML 2006."""
    batch, length = transcripts.shape

    def loss(logits: Tensor) -> Tensor:
        frames = (logits.size(0),) * batch
        lengths = (length,) * batch
        return torch.ctc_loss(logits.log_softmax(dim=-1), transcripts, frames, lengths, _BLANK, _MEAN)

    return loss


_FRAMES = 3000
_TEXT_POSITIONS = 448


class Whisper(nn.Module):
    """Two convolutions, the second halving the frames, an encoder, and a decoder with tied embeddings.

    Positions of the encoder are sinusoids that are not trained.
    """

    def __init__(
        self, mels: int, width: int, vocabulary: int, encoder: list[Block], decoder: list[Block]
    ) -> None:
        super().__init__()
        self.first = nn.Conv1d(mels, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.sound_positions = nn.Parameter(torch.zeros(_FRAMES // 2, width), requires_grad=False)
        self.encoder = nn.ModuleList(encoder)
        self.encoder_norm = nn.LayerNorm(width)
        self.tokens = nn.Embedding(vocabulary, width)
        self.text_positions = nn.Parameter(torch.zeros(_TEXT_POSITIONS, width))
        self.decoder = nn.ModuleList(decoder)
        self.decoder_norm = nn.LayerNorm(width)

    def forward(self, spectrogram: Tensor, ids: Tensor) -> Tensor:
        sound = functional.gelu(self.second(functional.gelu(self.first(spectrogram))))
        memory = sound.transpose(1, 2) + self.sound_positions
        for block in self.encoder:
            memory = block(memory)
        memory = self.encoder_norm(memory)
        x = self.tokens(ids) + self.text_positions[: ids.size(1)]
        for block in self.decoder:
            x = block(x, memory=memory)
        return functional.linear(self.decoder_norm(x), self.tokens.weight)


def whisper(
    sizes: Sizes, *, layers: int, width: int, heads: int, hidden: int, vocabulary: int, mels: int
) -> Example:
    """Whisper with sound and its text, `layers` in the encoder and in the decoder."""

    def attention(*, causal: bool) -> Attention:
        return Attention(width, heads, kind=sizes.attention, causal=causal, key_bias=False)

    def block(*, decoder: bool) -> Block:
        return Block(
            attention(causal=decoder),
            FeedForward(width, hidden, "gelu"),
            partial(nn.LayerNorm, width),
            cross_attention=attention(causal=False) if decoder else None,
        )

    encoder = [block(decoder=False) for _ in range(layers)]
    decoder = [block(decoder=True) for _ in range(layers)]
    spectrograms = torch.rand(sizes.batch, mels, _FRAMES)
    text = (sizes.batch, sizes.seq_len)
    return Example(
        Whisper(mels, width, vocabulary, encoder, decoder).train(),
        (spectrograms, torch.randint(vocabulary, text)),
        cross_entropy(torch.randint(vocabulary, text)),
        samples=sizes.batch,
        tokens=sizes.batch * sizes.seq_len,
    )


_SAMPLES_PER_CLIP = 12_000
_DIGITS = 10


def voice_linear(sizes: Sizes) -> Example:
    """Four linear layers, 12000 to 1000 to 100 to 10 to 10."""
    module = nn.Sequential(
        nn.Linear(_SAMPLES_PER_CLIP, 1000),
        nn.ReLU(),
        nn.Linear(1000, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
        nn.Sigmoid(),
        nn.Linear(10, _DIGITS),
    )
    return _digit_recognition(module, sizes)


def voice_conv(sizes: Sizes) -> Example:
    """Three convolutions with max pooling, then two linear layers."""
    module = nn.Sequential(
        nn.Conv1d(1, 50, 200, padding=100),
        nn.ReLU(),
        nn.MaxPool1d(4),
        nn.Conv1d(50, 30, 100, padding=50),
        nn.ReLU(),
        nn.MaxPool1d(3),
        nn.Conv1d(30, 10, 50, padding=25),
        nn.ReLU(),
        nn.MaxPool1d(5),
        nn.Flatten(),
        nn.Linear(2000, 100),
        nn.Sigmoid(),
        nn.Linear(100, _DIGITS),
    )
    return _digit_recognition(module, sizes)


def _digit_recognition(module: nn.Module, sizes: Sizes) -> Example:
    clips = torch.rand(sizes.batch, 1, _SAMPLES_PER_CLIP)
    loss = cross_entropy(torch.randint(_DIGITS, (sizes.batch,)))
    return Example(module.train(), (clips,), loss, samples=sizes.batch)

"""Every entry trains one step on the meta device and is as large as published; small ones run for real."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from foretrain.workloads.example import Example
from foretrain.workloads.zoo import BuildOptions, ZooEntry, build, zoo

RECURRENT = {"nmt", "deepspeech"}
"""Families whose layers run step by step on the meta device: short sequences keep the tests quick."""


def parameter_count(example: Example) -> int:
    return sum(parameter.numel() for parameter in example.module.parameters())


def small_enough(entry: ZooEntry) -> BuildOptions:
    return BuildOptions(seq_len=8) if entry.family in RECURRENT else BuildOptions()


@pytest.mark.parametrize("name", zoo())
def test_a_training_step_runs_on_the_meta_device(name: str) -> None:
    entry = zoo()[name]
    with torch.device("meta"):
        example = build(name, small_enough(entry))
        loss = example.forward()
        torch.autograd.backward(loss)
    assert example.module.training
    assert loss.shape == ()
    assert example.samples == entry.batch.default
    without_gradient = [key for key, weight in example.module.named_parameters() if weight.grad is None]
    assert without_gradient == (["sound_positions"] if entry.family == "whisper" else [])
    if entry.parameters is not None:
        assert parameter_count(example) == pytest.approx(
            entry.parameters, rel=entry.parameters_tolerance, abs=0
        )


WITH_FLOP = [name for name, entry in zoo().items() if entry.forward_flop_per_sample is not None]


@pytest.mark.parametrize("name", WITH_FLOP)
def test_the_forward_pass_does_the_published_work(name: str) -> None:
    entry = zoo()[name]
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        build(name, BuildOptions(batch=2)).forward()
    assert counter.get_total_flops() / 2 == pytest.approx(
        entry.forward_flop_per_sample, rel=entry.forward_flop_tolerance
    )


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("mnist-cnn", 20 * 26 + 50 * (20 * 25 + 1) + 500 * 801 + 10 * 501),
        # ResNet-18 less 2 of 3 input channels and 40 of 49 kernel positions, and 990 of 1000 classes
        ("mnist-resnet18", 11_689_512 - 64 * (3 * 49 - 9) - 990 * 513),
        # users and items times both embeddings, the perceptron, the last layer
        ("ncf", (138_493 + 26_744) * (64 + 128) + 256 * 257 + 128 * 257 + 64 * 129 + 129),
    ],
)
def test_parameters_counted_by_hand(name: str, parameters: int) -> None:
    with torch.device("meta"):
        assert parameter_count(build(name)) == parameters


FIRST_OF_EACH_EXTENT = {
    (entry.family, entry.image_size): name
    for name, entry in reversed(list(zoo().items()))
    if entry.image_size is not None
}


@pytest.mark.parametrize("name", FIRST_OF_EACH_EXTENT.values())
def test_the_least_image_size_is_one_the_model_can_take(name: str) -> None:
    extent = zoo()[name].image_size
    assert extent is not None
    with torch.device("meta"):
        build(name, BuildOptions(batch=2, image_size=extent.least)).forward()
        build(name, BuildOptions(batch=1, image_size=max(extent.least, extent.least_alone))).forward()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mnist-cnn", BuildOptions(batch=4)),
        ("mnist-resnet18", BuildOptions(batch=2)),
        ("voice-linear", BuildOptions(batch=2)),
        ("voice-conv", BuildOptions(batch=2)),
        ("cifar-resnet20", BuildOptions(batch=2)),
        ("densenet40-k12", BuildOptions(batch=2, image_size=8)),
        ("mobilenet-v2", BuildOptions(batch=2, image_size=64)),
        ("googlenet", BuildOptions(batch=2, image_size=64)),
        ("unet", BuildOptions(batch=2, image_size=32)),
        ("yolov3", BuildOptions(batch=2, image_size=32)),
        ("deepspeech2", BuildOptions(batch=2, seq_len=64)),
        ("nmt-medium", BuildOptions(batch=2, seq_len=4)),
        ("ncf", BuildOptions(batch=16)),
        ("t5-small", BuildOptions(batch=2, seq_len=8)),
    ],
)
def test_small_models_train_for_real(name: str, options: BuildOptions) -> None:
    torch.manual_seed(0)
    example = build(name, options)
    loss = example.forward()
    torch.autograd.backward(loss)
    assert torch.isfinite(loss)
    gradients = [weight.grad for weight in example.module.parameters()]
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients)


def layer_shapes(example: Example) -> list[tuple[int, ...]]:
    """The output shape, without the batch, of each layer of a sequential module."""
    assert isinstance(example.module, nn.Sequential)
    (x,) = example.inputs
    shapes = []
    for layer in example.module:
        x = layer(x)
        shapes.append(tuple(x.shape[1:]))
    return shapes


def test_voice_conv_has_the_shapes_of_the_printed_table() -> None:
    with torch.device("meta"):
        shapes = layer_shapes(build("voice-conv"))
    assert [shape for shape in shapes if len(shape) == 2] == [
        *[(50, 12001)] * 2, (50, 3000), *[(30, 3001)] * 2, (30, 1000), *[(10, 1001)] * 2, (10, 200),
    ]  # fmt: skip
    assert shapes[-4:] == [(2000,), (100,), (100,), (10,)]
    printed = sum(torch.Size(shape).numel() for shape in shapes) - 2000  # the table has no row for flattening
    assert 2 * 4 * printed / 2**20 == pytest.approx(12.07, abs=0.005)


def test_mnist_cnn_has_the_800_features_of_the_guide() -> None:
    with torch.device("meta"):
        assert (800,) in layer_shapes(build("mnist-cnn"))


def test_yolov3_predicts_at_three_scales() -> None:
    with torch.device("meta"):
        example = build("yolov3", BuildOptions(batch=1))
        outputs: tuple[Tensor, ...] = example.module(*example.inputs)
    assert [tuple(output.shape) for output in outputs] == [(1, 255, n, n) for n in (13, 26, 52)]


def test_unet_answers_every_pixel() -> None:
    with torch.device("meta"):
        example = build("unet", BuildOptions(batch=1, image_size=48))
        assert example.module(*example.inputs).shape == (1, 2, 48, 48)


def test_the_auxiliary_classifiers_weigh_in_the_loss() -> None:
    example = build("googlenet", BuildOptions(batch=2, image_size=32))
    assert example.loss is not None
    zero = torch.zeros(2, 1000)  # any class costs log 1000
    assert example.loss((zero,)).exp().item() == pytest.approx(1000, rel=1e-4)
    assert (example.loss((zero, zero, zero)) / 1.6).exp().item() == pytest.approx(1000, rel=1e-4)


def test_samples_and_tokens_of_a_step() -> None:
    with torch.device("meta"):
        gpt = build("gpt2", BuildOptions(batch=3, seq_len=7))
        t5 = build("t5-small", BuildOptions(batch=3, seq_len=7))
        resnet = build("resnet18", BuildOptions(batch=3))
    assert (gpt.samples, gpt.tokens) == (3, 21)
    assert (t5.samples, t5.tokens) == (3, 42)
    assert (resnet.samples, resnet.tokens) == (3, 0)

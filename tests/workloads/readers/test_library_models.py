"""timm and torchvision by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import read_model
from foretrain.workloads.readers.image_libraries import TimmModel, read_timm
from foretrain.workloads.rules import operators, unknown_names
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.zoo import BuildOptions


def parameters_of(model: str, image_size: int | None = None) -> int:
    """Trainable parameters of a traced step of two images."""
    example = read_model(model).example(BuildOptions(batch=2, image_size=image_size))
    graph = trace(example, ResolvedOptions(precision="bf16"))
    assert unknown_names(operators(graph)) == ()
    assert graph.samples == 2
    return graph.trainable_parameters


@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("torchvision:resnet18", 11_689_512),
        ("torchvision:mobilenet_v3_small", 2_542_856),
        ("torchvision:inception_v3", 27_161_264),
        ("torchvision:lraspp_mobilenet_v3_large", 3_221_538),
        ("torchvision:deeplabv3_mobilenet_v3_large", 11_029_328),
        ("timm:resnet18", 11_689_512),
        ("timm:vit_tiny_patch16_224", 5_717_416),
    ],
)
def test_parameters_as_published(model: str, published: int) -> None:
    """torchvision's model pages (num_params); ViT-Ti/16: 5.7 M (Steiner et al., arXiv:2106.10270)."""
    assert parameters_of(model) == published


def test_a_segmentation_model_learns_from_its_auxiliary_output_too() -> None:
    example = read_model("torchvision:deeplabv3_mobilenet_v3_large").example(BuildOptions(2, image_size=64))
    example.forward().backward()
    assert all(parameter.grad is not None for parameter in example.module.parameters())


def test_image_sizes_of_a_convolutional_and_of_a_fixed_model() -> None:
    convolutional = read_model("timm:resnet18").example(BuildOptions(batch=2, image_size=96))
    assert convolutional.inputs[0].shape == (2, 3, 96, 96)
    tokens = (96 // 16) ** 2 - (224 // 16) ** 2
    assert parameters_of("timm:vit_tiny_patch16_224", image_size=96) == 5_717_416 + 192 * tokens


def test_a_former_name_is_the_model_it_became() -> None:
    renamed = read_timm("timm:vit_tiny_patch16_224_in21k")
    assert renamed == TimmModel("timm:vit_tiny_patch16_224_in21k", "vit_tiny_patch16_224.augreg_in21k")
    assert renamed.fingerprint() == read_timm("timm:vit_tiny_patch16_224.augreg_in21k").fingerprint()


def test_a_former_name_whose_tag_is_gone_is_the_plain_model() -> None:
    assert read_timm("timm:vit_base_patch16_224_sam").architecture == "vit_base_patch16_224"


def test_a_model_that_comes_without_a_head_is_given_one() -> None:
    example = read_model("timm:vit_small_patch14_dinov2").example(BuildOptions(batch=2, image_size=28))
    assert example.module(*example.inputs).shape == (2, 1000)


@pytest.mark.parametrize(
    ("model", "near"),
    [
        ("timm:resnet50_", "resnet50"),
        ("torchvision:resnet51", "resnet5"),
        ("timm:resnet18.unknown", "resnet18"),
    ],
)
def test_the_error_of_an_unknown_name_names_near_ones(model: str, near: str) -> None:
    with pytest.raises(UnknownName) as caught:
        read_model(model)
    assert any(near in name for name in caught.value.near)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("torchvision:r3d_18", "need clips"),
        ("torchvision:raft_small", "pairs of images"),
        ("torchvision:quantized_resnet18", "cannot be trained"),
    ],
)
def test_models_that_cannot_be_traced_say_why(model: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read_model(model)


def test_sizes_they_do_not_have() -> None:
    with pytest.raises(InvalidRequest, match="has no seq_len"):
        read_model("timm:resnet18").example(BuildOptions(seq_len=8))
    with pytest.raises(InvalidRequest, match="17 pixels"):
        read_model("timm:xcit_nano_12_p16_224").example(BuildOptions(image_size=17))


def test_libraries_import_after_the_repair_even_if_it_is_done_twice() -> None:
    program = (
        "from foretrain.workloads.readers._torchvision import repair_torchvision as repair; "
        "repair(); import timm, transformers; repair(); import torchvision"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr

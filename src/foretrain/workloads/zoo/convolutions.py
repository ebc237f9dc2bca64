"""The unit most convolutional networks repeat: convolution, batch norm, activation."""

from __future__ import annotations

from torch import nn

Kernel = int | tuple[int, int]


def same_padding(kernel: Kernel) -> Kernel:
    """The padding that keeps the size at stride 1, for odd kernels."""
    return kernel // 2 if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: Kernel = 1,
    *,
    stride: int = 1,
    padding: Kernel | None = None,
    groups: int = 1,
    activation: nn.Module | None = None,
    eps: float = 1e-5,
) -> nn.Sequential:
    """Convolution without bias, batch norm, and the activation if one is given; padding keeps the size."""
    padding = same_padding(kernel) if padding is None else padding
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    layers = [convolution, nn.BatchNorm2d(outputs, eps=eps)]
    return nn.Sequential(*layers, *([activation] if activation else []))


def conv_norm_relu(
    inputs: int,
    outputs: int,
    kernel: Kernel = 1,
    *,
    stride: int = 1,
    padding: Kernel | None = None,
    eps: float = 1e-5,
) -> nn.Sequential:
    """`conv_norm` with an in-place ReLU."""
    relu = nn.ReLU(inplace=True)
    return conv_norm(inputs, outputs, kernel, stride=stride, padding=padding, activation=relu, eps=eps)

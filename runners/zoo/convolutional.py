"""Convolutional networks that classify images, written from their papers with torch.nn alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

__all__ = ["AlexNet", "MobileNetV1", "MobileNetV2", "ResNet", "Vgg"]

_CLASSES = 1000


def convolution(inputs: int, outputs: int, size: int, stride: int = 1, *, groups: int = 1) -> nn.Conv2d:
    """A convolution without bias, padded so that stride 1 keeps the image's size."""
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)


class _Residual(nn.Module):
    """A block of ResNet (He et al., 2015); with a bottleneck the 3 by 3 strides, which is known as version 1.5."""

    def __init__(self, inputs: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        sizes = (
            ((1, width, 1), (3, width, stride), (1, outputs, 1)) if bottleneck else ((3, width, stride), (3, width, 1))
        )
        parts: list[nn.Module] = []
        channels = inputs
        for size, out, step in sizes:
            parts += [convolution(channels, out, size, step), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
            channels = out
        self.body = nn.Sequential(*parts[:-1])
        same = stride == 1 and inputs == outputs
        self.shortcut = (
            None if same else nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.body(x) + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    """ResNet of that many blocks a stage (He et al., 2015)."""

    def __init__(self, depths: Sequence[int], *, bottleneck: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            convolution(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        blocks = []
        channels = 64
        for stage, depth in enumerate(depths):
            width = 64 << stage
            for number in range(depth):
                stride = 2 if number == 0 and stage else 1
                blocks.append(_Residual(channels, width, stride, bottleneck=bottleneck))
                channels = 4 * width if bottleneck else width
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, _CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


def _classifier(inputs: int) -> nn.Sequential:
    """The three wide layers at the end of AlexNet and VGG."""
    parts: list[nn.Module] = []
    for width in (inputs, 4096):
        parts += [nn.Linear(width, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*parts, nn.Linear(4096, _CLASSES))


class Vgg(nn.Module):
    """VGG of that many convolutions a stage (Simonyan and Zisserman, 2014)."""

    def __init__(self, depths: Sequence[int]) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        channels = 3
        for depth, width in zip(depths, (64, 128, 256, 512, 512), strict=True):
            for _ in range(depth):
                parts += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            parts.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(7))
        self.classifier = _classifier(512 * 7 * 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.features(x), 1))


class AlexNet(nn.Module):
    """AlexNet for one device (Krizhevsky, 2014)."""

    def __init__(self) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        rows = ((3, 64, 11, 4, 2), (64, 192, 5, 1, 2), (192, 384, 3, 1, 1), (384, 256, 3, 1, 1), (256, 256, 3, 1, 1))
        for number, (inputs, outputs, size, stride, padding) in enumerate(rows):
            parts += [nn.Conv2d(inputs, outputs, size, stride, padding), nn.ReLU(inplace=True)]
            if number in (0, 1, 4):
                parts.append(nn.MaxPool2d(3, 2))
        self.features = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(6))
        self.classifier = _classifier(256 * 6 * 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.features(x), 1))


def _convolution_with_activation(
    inputs: int, outputs: int, size: int, stride: int = 1, *, groups: int = 1
) -> list[nn.Module]:
    return [convolution(inputs, outputs, size, stride, groups=groups), nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True)]


class MobileNetV1(nn.Module):
    """MobileNet of that width (Howard et al., 2017): depthwise 3 by 3 and pointwise convolutions in turn."""

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        stages = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
        channels = int(32 * width)
        parts = _convolution_with_activation(3, channels, 3, 2)
        for full, stride in stages:
            outputs = int(full * width)
            parts += _convolution_with_activation(
                channels, channels, 3, stride, groups=channels
            ) + _convolution_with_activation(channels, outputs, 1)
            channels = outputs
        self.features = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(channels, _CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.features(x), 1))


class _InvertedResidual(nn.Module):
    """Widens, filters each channel, narrows; and adds its input where the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        parts = _convolution_with_activation(inputs, wide, 1) if expansion > 1 else []
        parts += _convolution_with_activation(wide, wide, 3, stride, groups=wide)
        self.body = nn.Sequential(*parts, convolution(wide, outputs, 1), nn.BatchNorm2d(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.adds else self.body(x)


class MobileNetV2(nn.Module):
    """MobileNetV2 (Sandler et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        stages = (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        )
        parts = _convolution_with_activation(3, 32, 3, 2)
        channels = 32
        for expansion, outputs, count, stride in stages:
            for number in range(count):
                parts.append(_InvertedResidual(channels, outputs, stride if number == 0 else 1, expansion))
                channels = outputs
        self.features = nn.Sequential(*parts, *_convolution_with_activation(channels, 1280, 1), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(1280, _CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.features(x), 1))

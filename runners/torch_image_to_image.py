"""Networks whose output is an image: segmentation and super resolution, with torch.nn alone."""

from __future__ import annotations

import itertools

import torch
from torch import nn

__all__ = ["Edsr", "Srgan", "UNet"]

_SEGMENTS = 21


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3 by 3 convolutions, each normalised and activated."""
    parts: list[nn.Module] = []
    for channels in (inputs, outputs):
        parts += [nn.Conv2d(channels, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015), padded, so that a class comes out for every pixel; sides divide by 16."""

    def __init__(self) -> None:
        super().__init__()
        widths = (64, 128, 256, 512, 1024)
        self.down = nn.ModuleList(_twice(i, o) for i, o in itertools.pairwise((3, *widths)))
        self.pool = nn.MaxPool2d(2)
        rising = widths[::-1]
        pairs = list(itertools.pairwise(rising))
        self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2) for i, o in pairs)
        self.merge = nn.ModuleList(_twice(i, o) for i, o in pairs)
        self.head = nn.Conv2d(widths[0], _SEGMENTS, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for block in self.down[:-1]:
            x = block(x)
            kept.append(x)
            x = self.pool(x)
        x = self.down[-1](x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        return self.head(x)


class _Residual(nn.Module):
    """Two convolutions added to their input; normalised ones in SRGAN, plain ones in EDSR."""

    def __init__(self, width: int, *, normalised: bool) -> None:
        super().__init__()
        norms = [nn.BatchNorm2d(width), nn.BatchNorm2d(width)] if normalised else [nn.Identity(), nn.Identity()]
        activation = nn.PReLU() if normalised else nn.ReLU(inplace=True)
        first, second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.body = nn.Sequential(first, norms[0], activation, second, norms[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


def _doubling_layers(width: int) -> list[nn.Module]:
    """Sides twice as long."""
    return [nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2)]


class Srgan(nn.Module):
    """The generator of SRGAN (Ledig et al., 2016): four times the sides."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 9, padding=4), nn.PReLU())
        blocks = [_Residual(64, normalised=True) for _ in range(16)]
        self.body = nn.Sequential(*blocks, nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64))
        self.up = nn.Sequential(*_doubling_layers(64), nn.PReLU(), *_doubling_layers(64), nn.PReLU())
        self.head = nn.Conv2d(64, 3, 9, padding=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.head(self.up(x + self.body(x)))


class Edsr(nn.Module):
    """The baseline of EDSR (Lim et al., 2017): four times the sides, nothing normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, padding=1)
        blocks = [_Residual(64, normalised=False) for _ in range(16)]
        self.body = nn.Sequential(*blocks, nn.Conv2d(64, 64, 3, padding=1))
        self.up = nn.Sequential(*_doubling_layers(64), *_doubling_layers(64))
        self.head = nn.Conv2d(64, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.head(self.up(x + self.body(x)))

"""Well-known models in plain modules of torch: as many products and convolutions as theirs, of the same shapes.

Attention is written as two products and a softmax. Made under `torch.device("meta")` they hold no data.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


class Bottleneck(nn.Module):  # type: ignore[misc, name-defined]
    """1 x 1, 3 x 3 and 1 x 1, the second with the stride (ResNet v1.5, as torchvision has it)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)),
        )
        same = channels == out and stride == 1
        self.skip = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, image: Any) -> Any:  # noqa: ANN401
        return torch.relu(self.body(image) + self.skip(image))


def resnet50() -> Any:  # noqa: ANN401
    """He et al. 2016, table 1, column of 50 layers."""
    blocks: list[Any] = []
    channels = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for at in range(count):
            blocks.append(Bottleneck(channels, width, 1 if at else stride))
            channels = 4 * width
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Layer(nn.Module):  # type: ignore[misc, name-defined]
    """A transformer's layer: attention of `heads`, and `width` of the feed-forward part, gated or not."""

    def __init__(self, size: int, heads: int, width: int, *, gated: bool = False) -> None:
        super().__init__()
        self.heads, self.gated = heads, gated
        self.joined, self.output = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, width * (2 if gated else 1)), nn.Linear(width, size)
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])

    def forward(self, tokens: Any) -> Any:  # noqa: ANN401
        parts = self.joined(self.norms[0](tokens)).chunk(3, -1)
        queries, keys, values = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in parts)
        weights = (queries @ keys.transpose(-1, -2)).softmax(-1)
        tokens = tokens + self.output((weights @ values).transpose(1, 2).flatten(2))
        hidden = self.up(self.norms[1](tokens))
        if self.gated:
            gate, hidden = hidden.chunk(2, -1)
            hidden = nn.functional.silu(gate) * hidden
        return tokens + self.down(nn.functional.gelu(hidden))


def layers(count: int, size: int, heads: int, width: int, *, gated: bool = False) -> Any:  # noqa: ANN401
    return nn.Sequential(*(Layer(size, heads, width, gated=gated) for _ in range(count)))


class ViT(nn.Module):  # type: ignore[misc, name-defined]
    """ViT-B/16 of Dosovitskiy et al. 2021: 196 patches and a token for the class, which alone is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.first = nn.Conv2d(3, 768, 16, 16), nn.Parameter(torch.empty(1, 1, 768))
        self.layers, self.head = layers(12, 768, 12, 3072), nn.Linear(768, 1000)

    def forward(self, image: Any) -> Any:  # noqa: ANN401
        tokens = torch.cat([self.first, self.patches(image).flatten(2).transpose(1, 2)], 1)
        return self.head(self.layers(tokens)[:, 0])


class UNet(nn.Module):  # type: ignore[misc, name-defined]
    """Ronneberger et al. 2015 with padding, so that the output is as large as the image."""

    def __init__(self, channels: int, depth: int, classes: int) -> None:
        super().__init__()
        widths = [channels << level for level in range(depth + 1)]
        before = [3, *widths[:-1]]
        self.down = nn.ModuleList(_twice(i, o) for i, o in zip(before, widths, strict=True))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.wider = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2) for i, o in pairs)
        self.up = nn.ModuleList(_twice(2 * o, o) for _, o in pairs)
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, image: Any) -> Any:  # noqa: ANN401
        kept: list[Any] = []
        for level in self.down:
            image = level(image if not kept else nn.functional.max_pool2d(image, 2))
            kept.append(image)
        for wider, level, skipped in zip(self.wider, self.up, kept[-2::-1], strict=True):
            image = level(torch.cat([skipped, wider(image)], 1))
        return self.head(image)


def _twice(channels: int, out: int) -> Any:  # noqa: ANN401
    return nn.Sequential(nn.Conv2d(channels, out, 3, 1, 1), nn.ReLU(), nn.Conv2d(out, out, 3, 1, 1), nn.ReLU())

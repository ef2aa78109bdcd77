"""Small models out of torch.nn alone, with their inputs, for captures that need no download."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

__all__ = ["WORKLOADS", "Recipe", "Workload"]

_VOCABULARY = 512
_SEQUENCE = 32
_WIDTH = 64
_CLASSES = 10


@dataclass(frozen=True)
class Recipe:
    """What a workload is built for; `checkpointing` recomputes blocks in the backward pass where a model can."""

    batch: int
    device: torch.device
    dtype: torch.dtype
    checkpointing: bool = False


@dataclass(frozen=True)
class Workload:
    """A model with one batch of inputs and labels on its device."""

    name: str
    task: str
    model: nn.Module
    inputs: torch.Tensor
    labels: torch.Tensor


class Mlp(nn.Module):
    """Three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(_WIDTH, 4 * _WIDTH), nn.ReLU(), nn.Linear(4 * _WIDTH, 4 * _WIDTH), nn.ReLU()
        )
        self.head = nn.Linear(4 * _WIDTH, _CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


class ResidualBlock(nn.Module):
    """Two convolutions and the block's input added to them: the addition is the container's own work."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = (
            nn.Identity()
            if stride == 1 and channels_in == channels_out
            else nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + self.downsample(x))


class ConvNet(nn.Module):
    """A residual network of three blocks, for 32 by 32 images."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.blocks = nn.Sequential(ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(64, _CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


class Attention(nn.Module):
    """Multi-head self-attention; everything between its projections is the container's own work."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(_WIDTH, _WIDTH)
        self.key = nn.Linear(_WIDTH, _WIDTH)
        self.value = nn.Linear(_WIDTH, _WIDTH)
        self.output = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (f(x).view(batch, length, self.heads, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.output(y.transpose(1, 2).reshape(batch, length, width))


class EncoderBlock(nn.Module):
    """Attention and a feed-forward network, each added to its input."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(_WIDTH)
        self.attention = Attention(heads)
        self.norm2 = nn.LayerNorm(_WIDTH)
        self.feed_forward = nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Transformer(nn.Module):
    """A two-block encoder that predicts a token at each position."""

    vocabulary = _VOCABULARY

    def __init__(self, *, checkpointing: bool) -> None:
        super().__init__()
        self.checkpointing = checkpointing
        self.tokens = nn.Embedding(_VOCABULARY, _WIDTH)
        self.position_embedding = nn.Embedding(_SEQUENCE, _WIDTH)
        self.blocks = nn.ModuleList(EncoderBlock(4) for _ in range(2))
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, _VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.position_embedding(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing and self.training else block(x)
        return self.head(self.norm(x))


def _mlp(recipe: Recipe) -> Workload:
    inputs = torch.randn(recipe.batch, _WIDTH, device=recipe.device, dtype=recipe.dtype)
    return Workload("mlp", "classification", _on_device(Mlp(), recipe), inputs, _labels(recipe, (recipe.batch,)))


def _convnet(recipe: Recipe) -> Workload:
    inputs = torch.randn(recipe.batch, 3, 32, 32, device=recipe.device, dtype=recipe.dtype)
    model = _on_device(ConvNet(), recipe)
    return Workload("convnet", "image classification", model, inputs, _labels(recipe, (recipe.batch,)))


def _transformer(recipe: Recipe) -> Workload:
    shape = (recipe.batch, _SEQUENCE)
    inputs = torch.randint(_VOCABULARY, shape, device=recipe.device)
    model = _on_device(Transformer(checkpointing=recipe.checkpointing), recipe)
    return Workload("transformer", "token prediction", model, inputs, _labels(recipe, shape))


def _on_device(model: nn.Module, recipe: Recipe) -> nn.Module:
    return model.to(device=recipe.device, dtype=recipe.dtype)


def _labels(recipe: Recipe, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randint(_CLASSES, shape, device=recipe.device)


WORKLOADS: dict[str, Callable[[Recipe], Workload]] = {"mlp": _mlp, "convnet": _convnet, "transformer": _transformer}
"""What the runner can run, by the name its command line takes."""

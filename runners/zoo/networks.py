"""Well-known networks out of torch.nn alone, so that a model of a name can be profiled where only torch is installed.

Layers and their sizes are those of the papers named beside each; the way they are written is ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from xsp_runners.zoo.convolutional import AlexNet, MobileNetV1, MobileNetV2, ResNet, Vgg
from xsp_runners.zoo.small_networks import ConvNet, Mlp, Transformer

__all__ = ["NETS", "Bert", "Gpt"]

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


_BERT_VOCABULARY = 30522
_GPT_VOCABULARY = 50257
_MAX_TOKENS = 1024
_CLASSES = 1000


class _Attention(nn.Module):
    """Multi-head self-attention; `causal` lets a token see only those before it."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.inputs(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.output(y.transpose(1, 2).reshape(batch, length, width))


class _Block(nn.Module):
    """Attention and a feed-forward network; normalised before each, or after each as BERT does."""

    def __init__(self, width: int, heads: int, *, causal: bool, norm_first: bool) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = _Attention(width, heads, causal=causal)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed_forward(x))


def _blocks(width: int, depth: int, heads: int, *, causal: bool, norm_first: bool) -> nn.Sequential:
    return nn.Sequential(*(_Block(width, heads, causal=causal, norm_first=norm_first) for _ in range(depth)))


class _PositionEmbedding(nn.Module):
    """Embeddings of tokens and their positions."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(_MAX_TOKENS, width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.tokens(ids) + self.position_embedding(torch.arange(ids.shape[1], device=ids.device))


class Bert(nn.Module):
    """BERT's encoder that predicts masked tokens (Devlin et al., 2018)."""

    vocabulary = _BERT_VOCABULARY

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.embeddings = _PositionEmbedding(_BERT_VOCABULARY, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = _blocks(width, depth, heads, causal=False, norm_first=False)
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.head = nn.Linear(width, _BERT_VOCABULARY)
        self.head.weight = self.embeddings.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.transform(self.blocks(self.norm(self.embeddings(ids)))))


class Gpt(nn.Module):
    """The decoder of GPT-2 (Radford et al., 2019), over a whole prompt."""

    vocabulary = _GPT_VOCABULARY

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.embeddings = _PositionEmbedding(_GPT_VOCABULARY, width)
        self.blocks = _blocks(width, depth, heads, causal=True, norm_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _GPT_VOCABULARY, bias=False)
        self.head.weight = self.embeddings.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.embeddings(ids))))


class VisionTransformer(nn.Module):
    """ViT with patches of 16 by 16 (Dosovitskiy et al., 2020)."""

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12, patch: int = 16, side: int = 224) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.position_embedding = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.02)
        self.blocks = _blocks(width, depth, heads, causal=False, norm_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        x = self.blocks(x + self.position_embedding[:, : x.shape[1]])
        return self.head(self.norm(x)[:, 0])


NETS: dict[str, Callable[..., nn.Module]] = {
    "mlp": Mlp,
    "convnet": ConvNet,
    "transformer": partial(Transformer, checkpointing=False),
    "resnet18": partial(ResNet, (2, 2, 2, 2), bottleneck=False),
    "resnet34": partial(ResNet, (3, 4, 6, 3), bottleneck=False),
    "resnet50": partial(ResNet, (3, 4, 6, 3), bottleneck=True),
    "resnet101": partial(ResNet, (3, 4, 23, 3), bottleneck=True),
    "resnet152": partial(ResNet, (3, 8, 36, 3), bottleneck=True),
    "vgg16": partial(Vgg, (2, 2, 3, 3, 3)),
    "vgg19": partial(Vgg, (2, 2, 4, 4, 4)),
    "alexnet": AlexNet,
    "mobilenet_v1": MobileNetV1,
    "mobilenet_v2": MobileNetV2,
    "vit_b_16": VisionTransformer,
    "unet": UNet,
    "srgan": Srgan,
    "edsr": Edsr,
    "bert_base": Bert,
    "bert_large": partial(Bert, width=1024, depth=24, heads=16),
    "gpt2": Gpt,
    "gpt2_medium": partial(Gpt, width=1024, depth=24, heads=16),
}
"""What builds each, by name; arguments are those of the list."""

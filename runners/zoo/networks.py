"""Networks out of torch.nn alone, small and well known, so that they can be profiled by name where only torch is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

__all__ = [
    "NETS",
    "WORKLOADS",
    "AlexNet",
    "Bert",
    "Gpt",
    "MobileNetV1",
    "MobileNetV2",
    "Recipe",
    "ResNet",
    "Vgg",
    "Workload",
]

# Small models out of torch.nn alone, with their inputs, for captures that need no download.

_VOCABULARY = 512
_SEQUENCE = 32
_WIDTH = 64
_FEW_CLASSES = 10


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
        self.head = nn.Linear(4 * _WIDTH, _FEW_CLASSES)

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
        self.head = nn.Linear(64, _FEW_CLASSES)

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
    return torch.randint(_FEW_CLASSES, shape, device=recipe.device)


WORKLOADS: dict[str, Callable[[Recipe], Workload]] = {"mlp": _mlp, "convnet": _convnet, "transformer": _transformer}
"""What the runner can run, by the name its command line takes."""


# Well-known networks out of torch.nn alone, so that a model can be profiled by name where only torch is installed.

# Convolutional networks that classify images, written from their papers with torch.nn alone.
_IMAGE_CLASSES = 1000


def convolution(inputs: int, outputs: int, size: int, stride: int = 1, *, groups: int = 1) -> nn.Conv2d:
    """A convolution without bias, padded so that stride 1 keeps the image's size."""
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)


class _ResidualBlock(nn.Module):
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
                blocks.append(_ResidualBlock(channels, width, stride, bottleneck=bottleneck))
                channels = 4 * width if bottleneck else width
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, _IMAGE_CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


def _classifier(inputs: int) -> nn.Sequential:
    """The three wide layers at the end of AlexNet and VGG."""
    parts: list[nn.Module] = []
    for width in (inputs, 4096):
        parts += [nn.Linear(width, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*parts, nn.Linear(4096, _IMAGE_CLASSES))


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
        self.head = nn.Linear(channels, _IMAGE_CLASSES)

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
        self.head = nn.Linear(1280, _IMAGE_CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.features(x), 1))


# Well-known networks out of torch.nn alone, so that a model of a name can be profiled where only torch is installed.
#
# Layers and their sizes are those of the papers named beside each; the way they are written is ours.
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

"""The flop of whole models by ours: against torch's count, a sum worked out by hand, and what was published.

On tensors without data. Published multiply-adds are half the flop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.torch, pytest.mark.slow]

_LAYER = 12 * 768 * 768
"""Weights of the matrices of a layer of 768: 3 and 1 of attention, 4 and 4 of the feed-forward part."""


def forward_flop(make: Callable[[Any], Any], *shape: int) -> int:
    """Of one pass over an input of this shape; ours and torch's must agree."""
    torch, dispatched = pytest.importorskip("torch"), pytest.importorskip("tests.helpers.dispatched_calls")
    with torch.device("meta"), torch.no_grad():
        model, values = make(pytest.importorskip("tests.helpers.plain_models")).eval(), torch.empty(shape)
        with dispatched.Recorder() as recorder:
            model(values)
    assert recorder.flop() == recorder.torch_flop()
    return int(recorder.flop())


def within_a_hundredth(flop: int, published: float) -> bool:
    return abs(flop - published) <= published / 100


def test_resnet_50() -> None:
    """4.09 G multiply-adds: torchvision's page of weights, ResNet50_Weights, "GFLOPS"."""
    flop = forward_flop(lambda models: models.resnet50(), 1, 3, 224, 224)
    # Stem 112 x 112 x 64 of 3 x 49; a stage of n blocks of width w on s x s: the first block takes c channels, its
    # 1 x 1 on the stage before, 4 times as many places but for the first stage.
    stages = ((64, 3, 56, 64, 1), (128, 4, 28, 256, 4), (256, 6, 14, 512, 4), (512, 3, 7, 1024, 4))
    by_hand = 112 * 112 * 64 * 147 + 2048 * 1000
    for width, count, side, channels, more in stages:
        first = more * channels * width + 9 * width * width + 4 * width * width + channels * 4 * width
        rest = (count - 1) * (4 * width * width + 9 * width * width + 4 * width * width)
        by_hand += side * side * (first + rest)
    assert flop == 2 * by_hand
    assert within_a_hundredth(flop, 2 * 4.09e9)


def test_resnet_50_backward() -> None:
    """Each convolution and the last product twice again, but for the gradient of the image."""
    torch, dispatched = pytest.importorskip("torch"), pytest.importorskip("tests.helpers.dispatched_calls")
    with torch.device("meta"):
        model, image = pytest.importorskip("tests.helpers.plain_models").resnet50(), torch.empty(1, 3, 224, 224)
    with dispatched.Recorder() as recorder:
        model(image).sum().backward()
    assert recorder.flop() == recorder.torch_flop()
    forward = sum(flop for call, flop in recorder.counted if call.name in {"aten::convolution", "aten::addmm"})
    assert recorder.flop() == 3 * forward - 2 * 112 * 112 * 64 * 147
    assert within_a_hundredth(forward, 2 * 4.09e9)


def test_vit_b_16() -> None:
    """17.56 G multiply-adds: torchvision's page of weights, ViT_B_16_Weights, "GFLOPS"."""
    flop = forward_flop(lambda models: models.ViT(), 1, 3, 224, 224)
    by_hand = 12 * (197 * _LAYER + 2 * 197 * 197 * 768) + 196 * 768 * 768 + 768 * 1000
    assert flop == 2 * by_hand
    assert within_a_hundredth(flop, 2 * 17.56e9)


def test_gpt_2_small() -> None:
    """291 648 307 200 flop of 1024 tokens: nanoGPT, transformer_sizing.ipynb, which counts attention without a mask."""
    torch = pytest.importorskip("torch")
    flop = forward_flop(
        lambda models: torch.nn.Sequential(models.layers(12, 768, 12, 3072), torch.nn.Linear(768, 50257, bias=False)),
        *(1, 1024, 768),
    )
    assert flop == 2 * (12 * (1024 * _LAYER + 2 * 1024 * 1024 * 768) + 1024 * 768 * 50257)
    assert flop == 291_648_307_200


def test_bert_base() -> None:
    """22.5 G flop of 128 tokens: Sun et al. 2020, MobileBERT, table 4."""
    flop = forward_flop(lambda models: models.layers(12, 768, 12, 3072), 1, 128, 768)
    assert flop == 2 * 12 * (128 * _LAYER + 2 * 128 * 128 * 768)
    assert within_a_hundredth(flop, 22.5e9)


def test_llama_2_7b() -> None:
    """850.00 G multiply-adds of 128 tokens: README of calflops. Layers of 4096 with 11008 gated; 32000 tokens."""
    torch = pytest.importorskip("torch")
    flop = forward_flop(
        lambda models: torch.nn.Sequential(
            models.layers(32, 4096, 32, 11008, gated=True), torch.nn.Linear(4096, 32000, bias=False)
        ),
        *(1, 128, 4096),
    )
    layer = 128 * (4 * 4096 * 4096 + 3 * 4096 * 11008) + 2 * 128 * 128 * 4096
    assert flop == 2 * (32 * layer + 128 * 4096 * 32000)
    assert within_a_hundredth(flop, 2 * 850.00e9)


def test_a_small_u_net() -> None:
    """Two levels of 16 and 32 channels over one of 64, on 64 x 64: each convolution by hand."""
    flop = forward_flop(lambda models: models.UNet(16, 2, 5), 1, 3, 64, 64)
    down = 64 * 64 * 9 * (3 * 16 + 16 * 16) + 32 * 32 * 9 * (16 * 32 + 32 * 32) + 16 * 16 * 9 * (32 * 64 + 64 * 64)
    wider = 16 * 16 * 4 * (64 * 32) + 32 * 32 * 4 * (32 * 16)  # each place gives 2 x 2
    up = 32 * 32 * 9 * (64 * 32 + 32 * 32) + 64 * 64 * 9 * (32 * 16 + 16 * 16)
    assert flop == 2 * (down + wider + up + 64 * 64 * 16 * 5)

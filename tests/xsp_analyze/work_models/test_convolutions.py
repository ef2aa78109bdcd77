"""Convolutions: flop and bytes worked out on paper, and as torch counts them, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.paper_calls import bytes_of, flop_of, tensor, work

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_analyze.work_models.call import Tensor


def fp32(*shape: int) -> Tensor:
    return tensor("fp32", *shape)


_IMAGE, _WEIGHT, _BIAS = fp32(2, 8, 15, 11), fp32(6, 4, 3, 2), fp32(6)
_SPACE = {"stride": [2, 1], "padding": [0, 1], "dilation": [2, 3]}
_READ = 4 * (2 * 8 * 15 * 11 + 6 * 4 * 3 * 2)
_FLOP = 2 * (4 * 3 * 2) * (2 * 6 * 6 * 10)
"""Each of 6 channels of 6 x 10 places takes 4 channels of 3 x 2: (15 - 2 * 2 - 1) // 2 + 1, (11 + 2 - 3 - 1) + 1."""


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("aten::conv2d", "bias stride padding dilation groups"),
        ("aten::convolution", "bias stride padding dilation transposed output_padding groups"),
        ("aten::_convolution", "bias stride padding dilation transposed output_padding groups benchmark"),
        ("aten::convolution_overrideable", "bias stride padding dilation transposed output_padding groups"),
        ("aten::cudnn_convolution", "padding stride dilation groups benchmark"),
        ("aten::miopen_convolution", "bias padding stride dilation groups benchmark"),
        ("aten::mkldnn_convolution", "bias padding stride dilation groups"),
        ("aten::cudnn_convolution_relu", "bias stride padding dilation groups"),
        ("aten::cudnn_convolution_add_relu", "added alpha bias stride padding dilation groups"),
    ],
)
def test_the_same_convolution_by_every_library(name: str, order: str) -> None:
    values: dict[str, object] = {**_SPACE, "groups": 2, "bias": _BIAS, "transposed": False, "output_padding": [0, 0]}
    values |= {"added": fp32(2, 6, 6, 10)}
    inputs = [values.get(each) for each in order.split()]
    more = (24 if "bias" in order else 0) + (4 * 720 if "added" in order else 0)
    assert flop_of(name, _IMAGE, _WEIGHT, *inputs) == _FLOP
    assert bytes_of(name, _IMAGE, _WEIGHT, *inputs) == (_READ + more, 4 * 720)


@pytest.mark.parametrize(
    ("name", "inputs", "flop"),
    [
        # 1 channel of 3 x 3 for each of 16 channels of 6 x 6 places, of 8 channels twice
        (
            "aten::_conv_depthwise2d",
            [fp32(1, 8, 8, 8), fp32(16, 1, 3, 3), [3, 3], None, [1, 1], [0, 0], [1, 1]],
            2 * 9 * 16 * 36,
        ),
        (
            "aten::miopen_depthwise_convolution",
            [fp32(1, 8, 8, 8), fp32(8, 1, 3, 3), None, [0, 0], [1, 1], [1, 1], 8],
            2 * 9 * 8 * 36,
        ),
        (
            "aten::thnn_conv2d",
            [fp32(1, 3, 1, 9), fp32(5, 3, 1, 4), [1, 4], None, [1, 1], [0, 0]],
            2 * 12 * 5 * 6,
        ),
        (
            "aten::slow_conv_dilated2d",
            [fp32(1, 3, 9, 9), fp32(5, 3, 3, 3), [3, 3], None, [1, 1], [0, 0], [2, 2]],
            2 * 27 * 5 * 25,
        ),
        (
            "aten::conv3d",
            [fp32(1, 2, 5, 6, 7), fp32(4, 2, 3, 3, 3), None, [1, 1, 1], [1, 1, 1], [1, 1, 1], 1],
            2 * 54 * 4 * 210,
        ),
        ("aten::conv1d", [fp32(3, 17), fp32(5, 3, 4), None, [3], [0], [1], 1], 2 * 12 * 5 * 5),  # without a batch
        # each of 6 channels of 7 x 5 places gives 2 channels of 3 x 3, in 2 groups
        (
            "aten::conv_transpose2d",
            [fp32(2, 6, 7, 5), fp32(6, 2, 3, 3), None, [2, 2], [1, 1], [1, 0], 2, [1, 1]],
            2 * 18 * 2 * 6 * 35,
        ),
        (
            "aten::cudnn_convolution_transpose",
            [fp32(2, 6, 7, 5), fp32(6, 2, 3, 3), [1, 1], [1, 0], [2, 2], [1, 1], 2],
            2 * 18 * 2 * 6 * 35,
        ),
        (
            "aten::slow_conv_transpose2d",
            [fp32(2, 6, 7, 5), fp32(6, 4, 3, 3), [3, 3], None, [2, 2], [1, 1], [1, 0], [1, 1]],
            2 * 36 * 2 * 6 * 35,
        ),
    ],
)
def test_kinds_of_convolutions(name: str, inputs: list[object], flop: int) -> None:
    assert flop_of(name, *inputs) == flop


def test_a_transposed_convolution_s_output() -> None:
    # 2 images of 4 channels: (7 - 1) * 2 - 2 + 2 + 1 + 1 by (5 - 1) * 2 - 2 + 2 + 1
    inputs = [fp32(2, 6, 7, 5), fp32(6, 2, 3, 3), None, [2, 2], [1, 1], [1, 0], 2, [1, 1]]
    assert bytes_of("aten::conv_transpose2d", *inputs) == (4 * (420 + 108), 4 * 2 * 4 * 14 * 9)


@pytest.mark.parametrize("name", ["aten::conv2d", "aten::_convolution_mode"])
def test_padding_by_name_is_not_recorded_and_the_convolution_inside_tells_it(name: str) -> None:
    assert work(name, fp32(1, 4, 9, 9), fp32(4, 4, 4, 4), None, [1, 1], None, [1, 1], 1) is None


def test_without_settings_what_runs_next_takes_the_output() -> None:
    image, weight = fp32(2, 8, 15, 11), fp32(8, 8, 3, 3)
    modelled = work("aten::conv2d", image, weight, following=fp32(2, 8, 7, 5))
    assert modelled is not None
    assert (modelled.flop, modelled.written_bytes) == (2 * 72 * 2 * 8 * 35, 4 * 560)
    assert work("aten::conv2d", image, weight, following=fp32(2, 6, 7, 5)) is None


_GRADIENT = fp32(2, 6, 6, 10)


def backward(*gradients: str) -> list[object]:
    space = [[2, 1], [0, 1], [2, 3], False, [0, 0], 2]
    return [_GRADIENT, _IMAGE, _WEIGHT, [6], *space, [each in gradients for each in ("image", "weight", "bias")]]


def test_each_gradient_takes_what_the_convolution_took() -> None:
    image, weight, gradient = 4 * 2640, 4 * 144, 4 * 720
    name = "aten::convolution_backward"
    modelled = work(name, *backward("image", "weight", "bias"))
    assert modelled is not None
    assert (modelled.flop, modelled.vector_flop) == (2 * _FLOP, 720)
    assert (modelled.read_bytes, modelled.written_bytes) == (gradient + image + weight, image + weight + 24)
    assert flop_of(name, *backward("weight")) == _FLOP
    assert bytes_of(name, *backward("weight")) == (gradient + image, weight)
    assert bytes_of(name, *backward("image")) == (gradient + weight, image)


def test_without_the_mask_the_gradients_are_unknown() -> None:
    assert work("aten::convolution_backward", _GRADIENT, _IMAGE, _WEIGHT) is None


def test_a_transposed_convolution_s_gradients() -> None:
    shapes = [fp32(2, 4, 14, 9), fp32(2, 6, 7, 5), fp32(6, 2, 3, 3)]
    settings = [None, [2, 2], [1, 1], [1, 1], True, [1, 0], 2, [True, True, False]]
    assert flop_of("aten::convolution_backward", *shapes, *settings) == 2 * 2 * 18 * 2 * 6 * 35


def test_gradients_of_torch_before_1_11_are_told_by_the_operators_inside() -> None:
    name = "aten::cudnn_convolution_backward"
    both, one = [f"{name}_input", "aten::empty", f"{name}_weight"], [f"{name}_weight"]
    assert flop_of(name, _IMAGE, _GRADIENT, _WEIGHT, inner=both) == 2 * _FLOP
    assert bytes_of(name, _IMAGE, _GRADIENT, _WEIGHT, inner=one) == (4 * (720 + 2640), 4 * 144)
    assert work(name, _IMAGE, _GRADIENT, _WEIGHT, inner=["aten::empty"]) is None


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "settings", "shape"),
    [
        ("Conv2d", {"in_channels": 4, "out_channels": 6, "kernel_size": (3, 5), "stride": (2, 1)}, (2, 4, 15, 13)),
        ("Conv1d", {"in_channels": 3, "out_channels": 5, "kernel_size": 4, "stride": 3}, (2, 3, 17)),
        ("Conv3d", {"in_channels": 2, "out_channels": 4, "kernel_size": 3, "padding": 1}, (1, 2, 7, 8, 9)),
        ("ConvTranspose1d", {"in_channels": 6, "out_channels": 4, "kernel_size": 5, "dilation": 2}, (2, 6, 7)),
        ("ConvTranspose2d", {"in_channels": 6, "out_channels": 4, "kernel_size": 3, "stride": 2}, (2, 6, 7, 5)),
        ("Conv2d", {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "padding": "same"}, (2, 4, 9, 9)),
    ],
)
def test_convolutions_are_as_torch_counts_them(
    kind: str, settings: dict[str, object], shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Forward and backward, dispatched without data and as the profiler records what runs."""
    torch, dispatched = pytest.importorskip("torch"), pytest.importorskip("tests.helpers.dispatched_calls")
    module = getattr(torch.nn, kind)(**settings)
    image = torch.randn(shape, requires_grad=True)
    with dispatched.Recorder() as recorder:
        module.to("meta")(image.detach().to("meta").requires_grad_()).sum().backward()
    forward, backward = (flop for _, flop in recorder.counted)
    assert backward == 2 * forward
    assert [dispatched.work_of(call).flop for call, _ in recorder.counted] == [forward, backward]
    ran = getattr(torch.nn, kind)(**settings)
    calls = dispatched.profiled(lambda: ran(image).sum().backward(), tmp_path)
    modelled = {call.name: dispatched.work_of(call) for call in calls if "conv" in call.name}
    assert {w.flop for name, w in modelled.items() if w and "backward" not in name} == {forward}
    assert {w.flop for name, w in modelled.items() if w and "backward" in name} == {backward}
    assert modelled["aten::convolution"].written_bytes == ran(image).nbytes


@pytest.mark.torch
@pytest.mark.slow
def test_groups_share_the_channels_of_the_weight_s_gradient() -> None:
    """Torch's formula, `conv_backward_flop`, multiplies all channels with all: it says that it skips groups."""
    torch, dispatched = pytest.importorskip("torch"), pytest.importorskip("tests.helpers.dispatched_calls")
    module = torch.nn.Conv2d(4, 6, 3, groups=2, device="meta")
    with dispatched.Recorder() as recorder:
        module(torch.randn(2, 4, 9, 9, device="meta", requires_grad=True)).sum().backward()
    (_, forward), (call, backward) = recorder.counted
    assert backward == forward + 2 * forward  # of the image, and of the weight in 2 groups
    assert dispatched.work_of(call).flop == 2 * forward

"""Well-known networks out of torch.nn alone, so that a model of a name can be profiled where only torch is installed.

Layers and their sizes are those of the papers named beside each; the way they are written is ours.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from torch import nn

from xsp_runners.torch_convolutional import AlexNet, MobileNetV1, MobileNetV2, ResNet, Vgg
from xsp_runners.torch_image_to_image import Edsr, Srgan, UNet
from xsp_runners.torch_transformers import Bert, Gpt, VisionTransformer
from xsp_runners.torch_zoo import ConvNet, Mlp, Transformer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NETS"]

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

"""What the name of a kernel that Inductor generated says: the operators that were fused into it."""

from __future__ import annotations

import re

__all__ = ["GENERATED", "operators_of_name"]

GENERATED = r"^(?:cpp|triton)_\w*fused_"
"""Names of functions that Inductor generated."""

_NAME = re.compile(r"(?:cpp|triton)_(?:[a-z]+_)?fused_(\w+?)_?(\d+)?$")
_SEVERAL_PARTS = [
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool2d_backward",
    "_fused_rms_norm",
    "_fused_rms_norm_backward",
    "_log_softmax",
    "_log_softmax_backward_data",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_softmax",
    "_softmax_backward_data",
    "_to_copy",
    "_unsafe_index",
    "_unsafe_masked_index_put_accumulate",
    "_unsafe_view",
    "_weight_norm_interface",
    "avg_pool2d",
    "avg_pool2d_backward",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "constant_pad_nd",
    "convolution_backward",
    "div_",
    "embedding_backward",
    "embedding_dense_backward",
    "full_like",
    "gelu_backward",
    "hardswish_backward",
    "hardtanh_backward",
    "index_add",
    "index_put",
    "index_select",
    "leaky_relu",
    "logical_and",
    "logical_not",
    "logical_or",
    "masked_fill",
    "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward",
    "native_batch_norm",
    "native_batch_norm_backward",
    "native_dropout",
    "native_dropout_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "native_layer_norm",
    "native_layer_norm_backward",
    "new_ones",
    "new_zeros",
    "nll_loss",
    "nll_loss_backward",
    "nll_loss_forward",
    "ones_like",
    "rand_like",
    "scalar_tensor",
    "select_backward",
    "select_scatter",
    "sigmoid_backward",
    "silu_backward",
    "slice_backward",
    "slice_scatter",
    "split_with_sizes",
    "tanh_backward",
    "threshold_backward",
    "upsample_bicubic2d",
    "upsample_bilinear2d",
    "upsample_nearest2d",
    "var_mean",
    "zeros_like",
]
_LONGEST_FIRST = re.compile("|".join(sorted(map(re.escape, _SEVERAL_PARTS), key=len, reverse=True)) + "|[^_]+")


def operators_of_name(name: str) -> str | None:
    """`aten::_to_copy, aten::add` of `triton_red_fused__to_copy_add_3`; None where the name is no generated one.

    Long names may be cut short by the compiler, and so is the list then.
    """
    match = _NAME.match(name)
    if match is None:
        return None
    return ", ".join(f"aten::{part}" for part in _parts(match[1])) or None


def _parts(text: str) -> list[str]:
    parts, at = [], 0
    while at < len(text):
        match = _LONGEST_FIRST.match(text, at)
        if match is not None and _ends(text, match.end()):
            parts.append(match[0])
            at = match.end() + 1
        else:  # an underscore of the next one's name, or a name that goes on
            plain = re.compile("_?[^_]+|_").match(text, at)
            parts.append(plain[0] if plain else text[at:])
            at += len(parts[-1]) + 1
    return parts


def _ends(text: str, at: int) -> bool:
    return at == len(text) or text[at] == "_"

"""What a kernel's name tells: a short label, its precision, and the operators that a compiler fused."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from xsp_analyze.classification.classify import kernel_matcher, precision_matcher

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "GENERATED",
    "MAX_LABEL",
    "base_name",
    "distinct_labels",
    "label_of",
    "normal_name",
    "operators_of_name",
    "precision_of",
]


_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"<unnamed>|\{anonymous\}|\(anonymous namespace\)|_GLOBAL__N__\w+"), "(anonymous)"),
    (re.compile(r"\(bool\)\s*0\b|\bfalse\b"), "0"),
    (re.compile(r"\(bool\)\s*1\b|\btrue\b"), "1"),
    (re.compile(r"\((?:unsigned )?(?:char|short|int|long|long long)\)\s*(-?\d+)"), r"\1"),  # (int)4: a template value
    (re.compile(r"\b(-?\d+)[uUlL]+\b"), r"\1"),  # 3ul
    (re.compile(r"\[lambda\(([^\[\]]*)\) \(instance (\d+)\)\]"), r"{lambda(\1)#\2}"),
    (re.compile(r"\{lambda\(([^{}]*)\)#(\d+)\}"), r"{lambda#\2}"),  # some profilers leave out the parameters
    (re.compile(r"\bunsigned (?=char|short|int|long)"), "u"),
    (re.compile(r"\bstd::__1::|\bstd::__cxx11::"), "std::"),
    (re.compile(r"^(?:void|static|__global__)\s+"), ""),
    (re.compile(r"\s+"), ""),
)


_CLONE = re.compile(r"\s*\[clone [^\]]*\]$")


def normal_name(name: str) -> str:
    """The whole name without what profilers spell differently: blanks, casts of template values, unnamed namespaces."""
    name = _CLONE.sub("", name.strip())
    for pattern, spelling in _SPELLINGS:
        name = pattern.sub(spelling, name)
    return name


def base_name(name: str) -> str:
    """The function alone: no return type, namespaces, template arguments or parameters."""
    depth, kept = 0, []
    for character in normal_name(name).replace("operator()", "call").replace("(anonymous)::", ""):
        if character in "<({[":
            if character == "(" and depth == 0:
                break
            depth += 1
        elif character in ">)}]":
            depth -= 1
        elif depth == 0:
            kept.append(character)
    return "".join(kept).rsplit("::", 1)[-1]


MAX_LABEL = 44
"""Characters that a label has at most; what is longer loses its middle."""
_FIELD = re.compile(r"\{(\w+(?:\|\w+)*)\}")
_KERNEL = re.compile(
    r"^launch_|^kernel_(?!\d)|"
    r"(?:_?(?:cuda_)?kernel(?:_cuda|_impl|_helper)?|CUDAKernel(?:Impl)?|Kernel(?:Launch|Impl\w*)?|Functor|\.kd)$"
)
_WRAPPED = re.compile(r"<(?:\w+::)*(\w+)\(")
_CAPITALISED = re.compile(r"^[A-Z][a-z]+$")
_EMPTY_SIZE = re.compile(r"(?<=\d)x(?= |$)")
_SPACES = re.compile(r"\s+")
_MANGLED = re.compile(r"^_Z\w*?\d+([a-z]\w*?)I?N?S?_?\d")
_GAP = "…"
_PART = re.compile(r"[A-Za-z0-9]+")
_MAX_PARTS = 6


def label_of(name: str, kind: str = "kernel") -> str:
    """What people read for a kernel of this name: `copy bf16`, `GEMM bf16 64x32x256`; a copy's own name as it is.

    Different kernels may have one label: a table that shows it shows the name as well.
    """
    if kind != "kernel":
        return name
    entry = kernel_matcher().first(name)
    match = entry.pattern.search(name) if entry else None
    if entry and entry.label and match:
        return _cut(_fill_template(entry.label, name, match))
    wrapped = _WRAPPED.search(name)  # clover::par_ranged2d_kernel<PdV_kernel(...)::[lambda ...]>: the function in it
    function = wrapped[1] if wrapped else base_name(name) or name
    return _cut(f"{_short_function_name(function)} {precision_of(name) or ''}".strip())


def distinct_labels(labels: Sequence[str], names: Sequence[str]) -> list[str]:
    """The labels of kernels; different names that share one get what differs in them: `GEMM tf32 128x128x32 (tn)`."""
    sharing: dict[str, dict[str, None]] = {}
    for label, name in zip(labels, names, strict=True):
        sharing.setdefault(label, {})[name] = None
    texts = {(label, name): text for label, own in sharing.items() for name, text in _by_name(label, list(own)).items()}
    return [texts[label, name] for label, name in zip(labels, names, strict=True)]


def _by_name(label: str, names: Sequence[str]) -> dict[str, str]:
    """By name, the label and as few of the name's own parts as tell it from the others; else the whole name."""
    if len(names) == 1:
        return {names[0]: label}
    counts = [Counter(_PART.findall(name)) for name in names]
    common = counts[0]
    for other in counts[1:]:
        common = common & other
    own = [_beyond(common, _PART.findall(name)) for name in names]
    for count in range(1, _MAX_PARTS + 1):
        texts = [f"{label} ({' '.join(parts[:count])})" if parts else label for parts in own]
        if len(set(texts)) == len(names):
            return dict(zip(names, texts, strict=True))
    return {name: f"{label}: {name}" for name in names}


def _beyond(common: Counter[str], parts: Sequence[str]) -> list[str]:
    left = Counter(common)
    kept = []
    for part in parts:
        if left[part]:
            left[part] -= 1
        else:
            kept.append(part)
    return kept


def precision_of(name: str) -> str | None:
    """The precision that a kernel's name tells; None where it tells none."""
    entry = precision_matcher().first(name)
    return entry.precision if entry else None


def _fill_template(template: str, name: str, match: re.Match[str]) -> str:
    groups = {key: _short_function_name(value) for key, value in match.groupdict().items() if value}
    groups["precision"] = precision_of(name) or ""
    text = _FIELD.sub(lambda field: next((groups[k] for k in field[1].split("|") if groups.get(k)), ""), template)
    return _SPACES.sub(" ", _EMPTY_SIZE.sub("", text)).strip()


def _short_function_name(function: str) -> str:
    """A function's name without what says that it is a kernel."""
    mangled = _MANGLED.search(function)
    bare = _KERNEL.sub("", mangled[1] if mangled else function).strip("_")
    return bare.lower() if _CAPITALISED.match(bare) else bare or function


def _cut(text: str) -> str:
    if len(text) <= MAX_LABEL:
        return text
    tail = MAX_LABEL // 3
    return f"{text[: MAX_LABEL - tail - len(_GAP)]}{_GAP}{text[-tail:]}"


# What the name of a kernel that Inductor generated says: the operators that were fused into it.

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

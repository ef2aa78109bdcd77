"""Small calls of torch's memory-bound operators: what makes the arguments, by the operator's name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from torch import Tensor

__all__ = ["AT_LEAST", "CASES", "NOT_ON_CPU", "PARTLY_WRITTEN"]

_UNARY = """abs neg relu relu6 floor ceil trunc frac sign sgn square conj_physical round exp exp2 expm1 log log2 log10
    log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma
    digamma sinc i0 deg2rad rad2deg special_i1 special_i0e special_ndtri special_erfcx special_log_ndtr special_entr
    sigmoid isnan isinf isfinite isposinf isneginf signbit logical_not silu mish hardsigmoid hardswish log_sigmoid gelu
    leaky_relu hardshrink softshrink softplus logit hardtanh celu selu elu nan_to_num log_sigmoid_forward zero_
    uniform_ normal_ exponential_ random_ cauchy_ log_normal_ bernoulli poisson sum nansum mean nanmean prod max min
    median nanmedian amax aminmax argmax argmin norm linalg_vector_norm var std var_mean std_mean all any count_nonzero
    sort argsort tril triu unique_consecutive"""
_FLOATS = """mul multiply maximum minimum fmax fmin remainder fmod floor_divide pow heaviside clamp_min clamp_max
    nextafter div divide true_divide atan2 arctan2 copysign hypot xlogy ldexp logaddexp logaddexp2 eq ne lt le gt ge
    greater greater_equal less less_equal not_equal logical_and logical_or logical_xor add sub subtract rsub isclose
    complex polar clamp clip prelu"""
_INTEGERS = """bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm __and__ __or__ __xor__
    __lshift__ __rshift__ __iand__ __ior__ __ixor__"""
_FOREACH = """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal
    round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc norm powsum max clone zero zero_"""
_FOREACH_TWO = "add sub mul div maximum minimum clamp_max clamp_min pow"


def x(*shape: int) -> Tensor:
    """Floats of 0.1 to 0.9, of 4 x 6 if no shape is given."""
    values: Tensor = _torch().rand(*(shape or (4, 6)))
    return values * 0.8 + 0.1


def n(*shape: int) -> Tensor:
    """Integers of 1 to 3."""
    values: Tensor = _torch().randint(1, 4, shape or (4, 6))
    return values


def of(values: object) -> Tensor:
    """The tensor of these values."""
    tensor: Tensor = _torch().tensor(values)
    return tensor


def mask() -> Tensor:
    """Booleans."""
    return x() > 0.5


def apart() -> Tensor:
    """Indices of which no two of a row are equal."""
    return of([[0, 1, 2], [3, 4, 5], [0, 2, 4], [1, 3, 5]])


def pair() -> list[Tensor]:
    """A list of tensors: 11 elements."""
    return [x(2, 3), x(5)]


def steps() -> list[Tensor]:
    """How often an optimizer updated each tensor of a pair."""
    return [of(2.0), of(2.0)]


def fp32() -> object:
    """The type of floats."""
    return _torch().float32


def in_dimensions(count: int, arguments: Callable[[int], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    """What makes the arguments for so many dimensions."""
    return lambda: arguments(count)


def _torch() -> ModuleType:
    return import_module("torch")  # here, as only the tests that run have it


_RATE = {"lr": 0.1, "weight_decay": 0.1, "maximize": False}
_ADAM = {**_RATE, "beta1": 0.9, "beta2": 0.9, "eps": 1e-8, "amsgrad": False}
_SGD = {**_RATE, "momentum": 0.9, "dampening": 0.0, "nesterov": False, "is_first_step": False}
_ADAGRAD = {**_RATE, "lr_decay": 0.0, "eps": 1e-8}

_INTERPOLATED = {
    "upsample_linear1d": 1, "upsample_bilinear2d": 2, "_upsample_bilinear2d_aa": 2, "upsample_trilinear3d": 3,
    "upsample_bicubic2d": 2, "_upsample_bicubic2d_aa": 2,
}  # fmt: skip

IMAGE, VOLUME = (2, 3, 8, 8), (2, 3, 4, 4, 4)
CASES: dict[str, Callable[[], tuple[Any, ...]]] = {name: lambda: (x(),) for name in _UNARY.split()}
CASES |= {name: lambda: (x(), x(6)) for name in _FLOATS.split()}
CASES |= {name: lambda: (n(), n(6)) for name in _INTEGERS.split()}
CASES |= {f"_foreach_{name}": lambda: (pair(),) for name in _FOREACH.split()}
CASES |= {f"_foreach_{name}": lambda: (pair(), pair()) for name in _FOREACH_TWO.split()}
CASES |= {f"_foreach_{name}": lambda: (pair(), pair(), pair()) for name in ("addcmul", "addcdiv", "lerp")}
CASES |= {
    # broadcasting, promotion, scalars, what is expanded
    "add outer": lambda: (x(4, 1), x(1, 6)),
    "add whole and half": lambda: (n(4, 6), x(6).half()),
    "add half and bfloat16": lambda: (x(4, 6).half(), x(6).bfloat16()),
    "add scalar": lambda: (n(4, 6), 2.5),
    "add same scalar": lambda: (x(4, 6).half(), 2),
    "mul integers": lambda: (n(4, 6).byte(), n(6).char()),
    "mul expanded": lambda: (x(6).expand(4, 6), x(4, 1).expand(4, 6)),
    "mul number": lambda: (n(4, 6), of(2.5)),
    "div integers": lambda: (n(), n()),
    "exp integers": lambda: (n(),),
    "eq scalar": lambda: (n(), 2),
    "clamp one": lambda: (x(), 0.2),
    "pow scalar": lambda: (2.0, n().int()),
    "bitwise_not": lambda: (n(),),
    "polygamma": lambda: (1, x()),
    "threshold": lambda: (x(), 0.5, 0.0),
    "lerp": lambda: (x(), x(6), 0.5),
    "addcmul": lambda: (x(), x(6), x(4, 1)),
    "addcdiv": lambda: (x(), x(6), x(4, 1)),
    "where": lambda: (mask(), x(), x(6)),
    "where scalar": lambda: (mask(), x().half(), 0.0),
    "masked_fill": lambda: (x(), mask(), 1.0),
    "_prelu_kernel": lambda: (x(), x(1, 6)),
    "prelu": lambda: (x(), x(6)),
    "glu": lambda: (x(),),
    "rrelu_with_noise": lambda: (x(), x()),
    # activations, losses: backward
    **{
        f"{name}_backward": lambda: (x(), x())
        for name in ("sigmoid", "tanh", "silu", "gelu", "hardswish", "hardsigmoid", "mish")
    },
    "threshold_backward": lambda: (x(), x(), 0.5),
    "threshold_backward expanded": lambda: (x(1, 1).expand(4, 6), x(), 0.5),
    "leaky_relu_backward": lambda: (x(), x(), 0.1, False),
    "hardtanh_backward": lambda: (x(), x(), 0, 1),
    "hardshrink_backward": lambda: (x(), x(), 0.5),
    "softshrink_backward": lambda: (x(), x(), 0.5),
    "softplus_backward": lambda: (x(), x(), 1, 20),
    "logit_backward": lambda: (x(), x()),
    "elu_backward": lambda: (x(), 1, 1, 1, False, x()),
    "log_sigmoid_backward": lambda: (x(), x(), x()),
    "_prelu_kernel_backward": lambda: (x(), x(), x(1, 6).expand(4, 6)),
    "glu_backward": lambda: (x(4, 3), x(), 1),
    "native_dropout": lambda: (x(), 0.5, True),
    "native_dropout_backward": lambda: (x(), mask(), 2.0),
    "mse_loss": lambda: (x(), x()),
    "mse_loss each": lambda: (x(), x(), 0),
    "smooth_l1_loss": lambda: (x(), x()),
    "huber_loss": lambda: (x(), x()),
    "soft_margin_loss": lambda: (x(), x()),
    "binary_cross_entropy": lambda: (x(), x()),
    "binary_cross_entropy_with_logits": lambda: (x(), x(), None, x(6)),
    "mse_loss_backward": lambda: (x(1)[0], x(), x(), 1),
    "soft_margin_loss_backward": lambda: (x(1)[0], x(), x(), 1),
    "smooth_l1_loss_backward": lambda: (x(1)[0], x(), x(), 1, 1.0),
    "huber_loss_backward": lambda: (x(1)[0], x(), x(), 1, 1.0),
    "binary_cross_entropy_backward": lambda: (x(1)[0], x(), x()),
    "nll_loss_forward": lambda: (x(), n(4), None, 1, -100),
    "nll_loss_forward each": lambda: (x(), n(4), None, 0, -100),
    "nll_loss2d_forward": lambda: (x(2, 4, 3, 3), n(2, 3, 3), None, 1, -100),
    "nll_loss_backward": lambda: (x(1)[0], x(), n(4), None, 1, -100, of(4.0)),
    "nll_loss2d_backward": lambda: (x(1)[0], x(2, 4, 3, 3), n(2, 3, 3), None, 1, -100, of(9.0)),
    # normalisation, softmax
    "layer_norm": lambda: (x(2, 4, 6), [4, 6], x(4, 6), x(4, 6)),
    "native_layer_norm": lambda: (x(2, 4, 6), [6], x(6), x(6), 1e-5),
    "native_layer_norm_backward": lambda: (x(), x(), [6], x(4, 1), x(4, 1), x(6), x(6), [True] * 3),
    "native_layer_norm_backward some": lambda: (x(), x(), [6], x(4, 1), x(4, 1), x(6), x(6), [True, False, False]),
    "rms_norm": lambda: (x(), [6], x(6)),
    "_fused_rms_norm": lambda: (x(), [6], x(6), 1e-5),
    "group_norm": lambda: (x(*IMAGE), 3, x(3), x(3)),
    "native_group_norm": lambda: (x(*IMAGE), x(3), x(3), 2, 3, 64, 3, 1e-5),
    "native_group_norm_backward": lambda: (x(*IMAGE), x(*IMAGE), x(2, 3), x(2, 3), x(3), 2, 3, 64, 3, [True] * 3),
    "batch_norm": lambda: (x(*IMAGE), x(3), x(3), x(3), x(3), True, 0.1, 1e-5, False),
    "batch_norm evaluated": lambda: (x(*IMAGE), x(3), x(3), x(3), x(3), False, 0.1, 1e-5, False),
    "instance_norm": lambda: (x(*IMAGE), x(3), x(3), x(3), x(3), True, 0.1, 1e-5, False),
    "native_batch_norm": lambda: (x(*IMAGE), x(3), x(3), x(3), x(3), True, 0.1, 1e-5),
    "_native_batch_norm_legit": lambda: (x(*IMAGE), x(3), x(3), x(3), x(3), True, 0.1, 1e-5),
    "_native_batch_norm_legit_no_training": lambda: (x(*IMAGE), x(3), x(3), x(3), x(3), 0.1, 1e-5),
    "_batch_norm_with_update": lambda: (x(*IMAGE), x(3), x(3), x(3), x(3), 0.1, 1e-5),
    "_batch_norm_no_update": lambda: (x(*IMAGE), x(3), x(3), x(3), x(3), 0.1, 1e-5),
    "native_batch_norm_backward": lambda: (
        x(*IMAGE), x(*IMAGE), x(3), x(3), x(3), x(3), x(3), True, 1e-5, [True] * 3,
    ),
    "batch_norm_backward": lambda: (
        x(*IMAGE), x(*IMAGE), x(3), x(3), x(3), x(3), x(3), True, 1e-5, [True, True, False], x(0),
    ),
    "batch_norm_update_stats": lambda: (x(*IMAGE), x(3), x(3), 0.1),
    "_weight_norm": lambda: (x(), x(4, 1)),
    "_weight_norm_interface": lambda: (x(), x(4, 1)),
    "_weight_norm_interface_backward": lambda: (x(), x(), x(4, 1), x(4, 1), 0),
    "softmax": lambda: (x(), 1),
    "softmax wide": lambda: (x().half(), 1, fp32()),
    "log_softmax": lambda: (x(), 1),
    "special_softmax": lambda: (x(), 1),
    "_softmax": lambda: (x(), 1, False),
    "_log_softmax": lambda: (x(), 1, False),
    "_softmax_backward_data": lambda: (x(), x(), 1, fp32()),
    "_log_softmax_backward_data": lambda: (x(), x(), 1, fp32()),
    "_masked_softmax": lambda: (x(), mask(), 1, 2),
    "_masked_softmax_backward": lambda: (x(), x(), mask(), 1),
    # reductions, sorts, samples
    "sum integers": lambda: (n().int(),),
    "sum rows": lambda: (x(2, 3, 4), [0, -1]),
    "sum kept": lambda: (x(2, 3, 4), [1], True),
    "mean rows": lambda: (x(2, 3, 4), [2]),
    "prod rows": lambda: (x(2, 3, 4), 1),
    "max rows": lambda: (x(2, 3, 4), 1),
    "max two": lambda: (x(2, 3), x(3)),
    "min rows": lambda: (x(2, 3, 4), -1, True),
    "median rows": lambda: (x(2, 3, 4), -1),
    "amin": lambda: (x(2, 3, 4), [1]),
    "logsumexp": lambda: (x(2, 3, 4), [1]),
    "argmax rows": lambda: (x(2, 3, 4), 1),
    "norm rows": lambda: (x(2, 3, 4), 2, [1]),
    "linalg_vector_norm rows": lambda: (x(2, 3, 4), 2, [1]),
    "var rows": lambda: (x(2, 3, 4), [1]),
    "std all unbiased": lambda: (x(2, 3, 4), True),
    "var_mean rows": lambda: (x(2, 3, 4), [1]),
    "all rows": lambda: (mask(), 1),
    "count_nonzero rows": lambda: (n(), [1]),
    "mode": lambda: (n(), 1),
    "kthvalue": lambda: (x(), 2, 1),
    "topk": lambda: (x(), 2, 1),
    "cumsum": lambda: (x(), 1),
    "cumsum integers": lambda: (n().int(), 1),
    "cumprod": lambda: (x(), 1),
    "logcumsumexp": lambda: (x(), 1),
    "_cummax_helper": lambda: (x(), x() + 1, n() + 9, 1),
    "_cummin_helper": lambda: (x(), x() + 1, n() + 9, 1),
    "cummax": lambda: (x(), 1),
    "cummin": lambda: (x(), 1),
    "_unique2": lambda: (x(), True, True),
    "unique_dim": lambda: (x(), 0, True, True),
    "bucketize": lambda: (x(), of([0.0, 1.0, 2.0, 3.0])),
    "searchsorted": lambda: (of([0.0, 1.0, 2.0, 3.0]), x()),
    "histc": lambda: (x(), 7),
    "multinomial": lambda: (x(), 2),
    "geometric_": lambda: (x(), 0.5),
    "bernoulli_": lambda: (x() + 1, 0.5),
    "randperm": lambda: (7,),
    "fill_": lambda: (x(), 2.0),
    "arange": lambda: (10,),
    "arange parts": lambda: (0, 1, 0.3),
    "linspace": lambda: (0, 1, 7),
    "logspace": lambda: (0, 1, 7),
    "eye": lambda: (5,),
    "eye wide": lambda: (5, 3),
    # copies, padding
    "copy_": lambda: (x(4, 6).half(), x(6)),
    "cat": lambda: ([x(), x(2, 6)],),
    "concat": lambda: ([x(), x(2, 6)],),
    "concatenate": lambda: ([x(), x(2, 6)],),
    "stack": lambda: ([x(), x()],),
    "_stack": lambda: ([x(), x()],),
    "roll": lambda: (x(), [1]),
    "flip": lambda: (x(), [0]),
    "rot90": lambda: (x(),),
    "constant_pad_nd": lambda: (x(), [1, 2, 0, 1]),
    **{f"{k}_pad1d": lambda: (x(2, 3, 8), [1, 2]) for k in ("reflection", "replication")},
    **{f"{k}_pad2d": lambda: (x(*IMAGE), [1, 2, 0, 1]) for k in ("reflection", "replication")},
    **{f"{k}_pad3d": lambda: (x(*VOLUME), [1, 2, 0, 1, 0, 0]) for k in ("reflection", "replication")},
    **{f"{k}_pad1d_backward": lambda: (x(2, 3, 11), x(2, 3, 8), [1, 2]) for k in ("reflection", "replication")},
    **{
        f"{k}_pad2d_backward": lambda: (x(2, 3, 9, 11), x(*IMAGE), [1, 2, 0, 1])
        for k in ("reflection", "replication")
    },
    **{
        f"{k}_pad3d_backward": lambda: (x(2, 3, 4, 5, 7), x(*VOLUME), [1, 2, 0, 1, 0, 0])
        for k in ("reflection", "replication")
    },
    # rows by indices
    "embedding": lambda: (x(50, 6), n(2, 3)),
    "embedding_bag": lambda: (x(50, 6), n(5), of([0, 2])),
    "_embedding_bag": lambda: (x(50, 6), n(5), of([0, 2])),
    "_embedding_bag_forward_only": lambda: (x(50, 6), n(5), of([0, 2])),
    "index_select": lambda: (x(4, 6, 2), 1, n(5)),
    "gather": lambda: (x(), 1, n(4, 3)),
    "take": lambda: (x(), n(5)),
    "embedding_dense_backward": lambda: (x(2, 3, 6), n(2, 3), 50, -1, False),
    "embedding_backward": lambda: (x(2, 3, 6), n(2, 3), 50, -1, False, False),
    "_embedding_bag_dense_backward": lambda: (
        x(2, 6), n(5), of([0, 0, 1, 1, 1]), of([2, 3]), n(2), 50, False, 0, None,
    ),
    "scatter": lambda: (x(), 1, n(4, 3), x(4, 3)),
    "scatter_": lambda: (x(), 1, apart(), x(4, 3) + 1),
    "scatter_add": lambda: (x(), 1, n(4, 3), x(4, 3)),
    "scatter_add_": lambda: (x(), 1, apart(), x(4, 3)),
    "scatter_reduce": lambda: (x(), 1, n(4, 3), x(4, 3), "sum"),
    "scatter_reduce_": lambda: (x(), 1, apart(), x(4, 3), "sum"),
    "index_add": lambda: (x(), 1, n(3), x(4, 3)),
    "index_add_": lambda: (x(), 1, of([0, 2, 3]), x(4, 3)),
    "index_put_": lambda: (x(), [of([0, 2])], x(2, 6) + 1),
    "_index_put_impl_": lambda: (x(), [of([0, 2])], x(2, 6) + 1),
    "put_": lambda: (x(), of([0, 2, 7]), x(3) + 1),
    "_embedding_bag_backward": lambda: (
        x(2, 6), n(5), of([0, 2]), of([0, 0, 1, 1, 1]), of([2, 3]), n(2), 50, False,
        0, False, None,
    ),
    "index_copy": lambda: (x(), 1, of([0, 2]), x(4, 2)),
    "index_fill": lambda: (x(), 1, of([0, 2]), 2.0),
    # pooling
    **{f"max_pool{d}d": in_dimensions(d, lambda d: (x(*VOLUME[: 2 + d]), [3], [2], [1])) for d in (1, 2, 3)},
    "max_pool2d up": lambda: (x(*IMAGE), [3], [2], [0], [1], True),
    "max_pool2d_with_indices": lambda: (x(*IMAGE), [3, 2], [2, 2], [1, 0]),
    "max_pool1d_with_indices": lambda: (x(2, 3, 8), [3], [2], [1]),
    "max_pool3d_with_indices": lambda: (x(*VOLUME), [2], [2]),
    **{f"avg_pool{d}d": in_dimensions(d, lambda d: (x(*VOLUME[: 2 + d]), [2])) for d in (1, 2, 3)},
    "max_pool2d_with_indices_backward": lambda: (
        x(2, 3, 4, 4), x(*IMAGE), [2, 2], [2, 2], [0, 0], [1, 1], False, n(2, 3, 4, 4),
    ),
    "max_pool3d_with_indices_backward": lambda: (
        x(2, 3, 2, 2, 2), x(*VOLUME), [2] * 3, [2] * 3, [0] * 3, [1] * 3, False, n(2, 3, 2, 2, 2),
    ),
    "adaptive_max_pool2d_backward": lambda: (x(2, 3, 2, 2), x(*IMAGE), n(2, 3, 2, 2)),
    "adaptive_max_pool3d_backward": lambda: (x(2, 3, 2, 2, 2), x(*VOLUME), n(2, 3, 2, 2, 2)),
    "avg_pool2d_backward": lambda: (x(2, 3, 4, 4), x(*IMAGE), [2], [2], [0], False, True, None),
    "avg_pool3d_backward": lambda: (x(2, 3, 2, 2, 2), x(*VOLUME), [2], [2], [0], False, True, None),
    "_adaptive_avg_pool2d_backward": lambda: (x(2, 3, 2, 2), x(*IMAGE)),
    "_adaptive_avg_pool3d_backward": lambda: (x(2, 3, 2, 2, 2), x(*VOLUME)),
    **{
        f"adaptive_{k}_pool{d}d": in_dimensions(d, lambda d: (x(*VOLUME[: 2 + d]), [2] * d))
        for k in ("avg", "max")
        for d in (1, 2, 3)
    },
    "_adaptive_avg_pool2d": lambda: (x(*IMAGE), [3, 2]),
    "_adaptive_avg_pool3d": lambda: (x(*VOLUME), [3, 2, 2]),
    **{
        f"{k}{d}d": in_dimensions(d, lambda d: (x(*VOLUME[: 2 + d]), [9] * d))
        for k in ("upsample_nearest", "_upsample_nearest_exact")
        for d in (1, 2, 3)
    },
    "upsample_nearest2d factors": lambda: (x(*IMAGE), None, [2.5, 2.0]),
    **{
        f"{k}{d}d_backward": in_dimensions(d, lambda d: (x(2, 3, *[9] * d), [9] * d, list(VOLUME[: 2 + d])))
        for k in ("upsample_nearest", "_upsample_nearest_exact")
        for d in (1, 2, 3)
    },
    **{
        name: in_dimensions(d, lambda d: (x(*VOLUME[: 2 + d]), [9] * d, False))
        for name, d in _INTERPOLATED.items()
    },
    **{
        f"{name}_backward": in_dimensions(d, lambda d: (x(2, 3, *[9] * d), [9] * d, list(VOLUME[: 2 + d]), False))
        for name, d in _INTERPOLATED.items()
    },
    "grid_sampler": lambda: (x(*IMAGE), x(2, 5, 4, 2), 0, 0, False),
    "grid_sampler_2d": lambda: (x(*IMAGE), x(2, 5, 4, 2), 0, 0, False),
    "grid_sampler_3d": lambda: (x(*VOLUME), x(2, 5, 4, 2, 3), 0, 0, False),
    "grid_sampler_2d_backward": lambda: (x(2, 3, 5, 4), x(*IMAGE), x(2, 5, 4, 2), 0, 0, False, [True, True]),
    "grid_sampler_3d_backward": lambda: (x(2, 3, 5, 4, 2), x(*VOLUME), x(2, 5, 4, 2, 3), 0, 0, False, [True, True]),
    # lists
    "_foreach_add scalar": lambda: (pair(), 1.0),
    "_foreach_copy": lambda: (pair(), pair()),
    "_foreach_copy_": lambda: (pair(), pair()),
    "_foreach_addcmul": lambda: (pair(), pair(), pair(), 1.0),
    "_foreach_addcdiv": lambda: (pair(), pair(), pair(), 1.0),
    "_foreach_abs_": lambda: ([x() - 1, x() - 1],),
    "_foreach_frac_": lambda: ([x() + 1, x() + 1],),
    "_fused_adam_": lambda: (*(pair() for _ in range(4)), [], steps(), _ADAM),
    "_fused_adam_ amsgrad": lambda: (*(pair() for _ in range(5)), steps(), _ADAM | {"amsgrad": True}),
    "_fused_adamw_": lambda: (*(pair() for _ in range(4)), [], steps(), _ADAM),
    "_fused_sgd_": lambda: (pair(), pair(), pair(), _SGD),
    "_fused_adagrad_": lambda: (pair(), pair(), pair(), steps(), _ADAGRAD),
    "_foreach_lerp": lambda: (pair(), pair(), 0.5),
    "_amp_foreach_non_finite_check_and_unscale_": lambda: (pair(), of([0.0]), of([2.0])),
}  # fmt: skip
"""By the name without `aten::`; a name with a space behind it, and more, is a further call of the operator."""

NOT_ON_CPU = {
    "cudnn_batch_norm", "miopen_batch_norm", "cudnn_batch_norm_backward", "miopen_batch_norm_backward",
    "_batch_norm_impl_index", "_batch_norm_impl_index_backward", "batch_norm_stats", "batch_norm_elemt",
    "batch_norm_backward_reduce", "batch_norm_backward_elemt", "_fused_dropout", "_masked_scale",
    "_amp_update_scale_", "cudnn_grid_sampler", "_cat",
    "_fused_rms_norm_backward", "equal", "_local_scalar_dense",
}  # fmt: skip
"""Operators of our tables that torch's CPU build has no kernel for, or whose results are no tensors."""

AT_LEAST = {
    "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only",  # beside the bags, what backward wants to know
    "unique_dim",  # and which rows are equal
    "log_sigmoid_forward",  # and on a CPU what backward computes again elsewhere
}  # fmt: skip
"""Operators that write more than their models say."""

PARTLY_WRITTEN = {
    "scatter_", "scatter_add_", "scatter_reduce_", "index_add_", "index_copy_", "index_fill_", "index_put_",
    "_index_put_impl_", "put_",
}  # fmt: skip
"""Operators that write some elements of a tensor."""

"""The class of a device activity: by the operator that launched it, then by its own name, then by its layer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_analyze.classification.entries import KernelClass, kernel_matcher, operator_matcher, precision_matcher
from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xsp_analyze.classification.entries import Entry

__all__ = ["Classified", "by_name", "by_operator", "class_of_operator", "classify", "decide", "learn", "operator_type"]


# What one device activity is: by the operator that launched it, then by its own name, then by its layer.

_PREFIX = re.compile(
    r"^(autograd::engine::evaluate_function: |(?:aten|prim|cudnn|onnx|vllm|_C)::|torch::(?:autograd::)?|tf\.|.*\bnn\.)+"
)
_SUFFIX = re.compile(r"(#\d+|[_.]\d+|_)$")
_OF_OPTIMIZER = (KernelClass.ELEMENTWISE, KernelClass.REDUCTION, KernelClass.OTHER)
"""Classes of kernels that are the optimizer's where it launched them; its copies and products remain what they are."""


@dataclass(frozen=True, slots=True)
class Classified:
    """A class; of communication which operation, where a name tells it.

    `products`: by its own name, whether it does products of tiles, which tensor cores could do.
    """

    kernel_class: KernelClass
    collective: str | None = None
    products: bool = False


_OTHER = Classified(KernelClass.OTHER)
_BY_KIND = {str(Kind.MEMCPY): Classified(KernelClass.COPY), str(Kind.MEMSET): Classified(KernelClass.MEMSET)}


def classify(
    kind: str, name: str, operator: str | None = None, layer: str | None = None, *, in_optimizer: bool = False
) -> Classified:
    """What an activity of this kind and name is.

    `operator`: the name of the innermost operator around its launch that `by_operator` knows; `layer`: the type of its
    layer; `in_optimizer`: the launch was in a step of the optimizer. A copy or memset is one whoever launched it, but
    for copies between devices that a collective launched, and communication is told by a kernel's name first:
    frameworks launch it from operators that do other things.
    """
    launcher, around = (by_operator(text) if text else None for text in (operator, layer))
    return decide(kind, name, launcher, around, in_optimizer=in_optimizer)


_PEERS = re.compile(r"(?i)\bp(?:to|2)p\b|peer")
"""Copies between devices: in a collective's call the copy engines are what communicates."""
_BY_NAME_FIRST = (KernelClass.COMMUNICATION, KernelClass.MIXTURE_OF_EXPERTS)
"""Classes that a kernel's name tells more surely than its operator's: a router's own `TopK` is no sort."""


def decide(
    kind: str, name: str, operator: Classified | None, layer: Classified | None, *, in_optimizer: bool
) -> Classified:
    """As `classify`, of what operator and layer were found to be."""
    if kind in _BY_KIND:
        is_of_collective = operator is not None and operator.kernel_class is KernelClass.COMMUNICATION
        return operator if operator and is_of_collective and _PEERS.search(name) else _BY_KIND[kind]
    named = by_name(name)
    if named is not None and named.kernel_class in _BY_NAME_FIRST:
        return named
    classified = operator or named or layer or _OTHER
    if in_optimizer and classified.kernel_class in _OF_OPTIMIZER:
        return Classified(KernelClass.OPTIMIZER)
    return classified


def by_name(name: str) -> Classified | None:
    """What a kernel of this name is, whoever launched it; None: no entry takes it. `learn` many names first."""
    return _of(kernel_matcher().first(name))


def by_operator(name: str) -> Classified | None:
    """What all is that an operator (or layer) of this name launches; None: its name does not say."""
    return _of(operator_matcher().first(operator_type(name)))


def class_of_operator(name: str) -> KernelClass:
    """The class of an operator's or a layer's name; OTHER where it does not say."""
    return (by_operator(name) or _OTHER).kernel_class


def learn(names: Iterable[str] = (), operators: Iterable[str] = ()) -> None:
    """Works out many names of kernels, and of operators, at once: one by one each takes milliseconds."""
    texts = list(names)
    kernel_matcher().learn(texts)
    precision_matcher().learn(texts)
    operator_matcher().learn(map(operator_type, operators))


def _of(entry: Entry | None) -> Classified | None:
    return None if entry is None else Classified(entry.kernel_class, entry.collective, entry.products)


def operator_type(name: str) -> str:
    """The operator's type, without the framework's prefix, a number of the call, or the mark of working in place."""
    bare = _PREFIX.sub("", name).split("/")[-1]
    return _SUFFIX.sub("", bare) or name

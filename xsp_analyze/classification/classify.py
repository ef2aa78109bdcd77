"""The class of a device activity: by the operator that launched it, then by its own name, then by its layer."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import polars as pl

from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "PEER_COPY",
    "Classified",
    "Entry",
    "KernelClass",
    "Matcher",
    "Pattern",
    "PrecisionEntry",
    "by_name",
    "by_operator",
    "class_of_operator",
    "classify",
    "decide",
    "kernel_entries",
    "kernel_matcher",
    "learn",
    "operator_entries",
    "operator_matcher",
    "operator_type",
    "precision_entries",
    "precision_matcher",
]

# The entries of the data files: patterns over names, what each says of a name, and which of them takes it.


class KernelClass(StrEnum):
    """What a kernel does; in the order in which tables list them."""

    MATRIX_PRODUCT = "matrix product"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    MIXTURE_OF_EXPERTS = "mixture of experts"  # routing, dispatch, the experts themselves, combining
    NORMALISATION = "normalisation"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"  # activations too
    REDUCTION = "reduction"
    EMBEDDING = "embedding and gather"
    POOLING = "pooling"
    SORTING = "sort and scan"
    RANDOM = "random"
    QUANTISATION = "quantisation"
    OPTIMIZER = "optimizer"
    COMMUNICATION = "communication"
    COPY = "copy"  # copies, and kernels that only move or convert
    MEMSET = "memset"  # memsets, and kernels that only fill
    OTHER = "other"


_FEW = 4  # texts for which making 85 automata costs more than trying each pattern
_LONG = 2_000  # characters of a text for which it does not
_READ = (
    8_000  # characters that are looked at: what a kernel is stands before that, and Python's time grows by the square
)
_LOOKAROUND = re.compile(r"\(\?<?[!=][^()]*\)")
_ASCII = ((r"\w", "[0-9A-Za-z_]"), (r"\d", "[0-9]"), (r"\b", r"(?-u:\b)"))  # the Unicode of polars' classes is slow


@dataclass(frozen=True)
class Pattern:
    """A pattern of a data file. Python compiles it, which takes a millisecond, when it is first tried: few ever are."""

    text: str

    def search(self, text: str) -> re.Match[str] | None:
        """Where the pattern is found first."""
        return self._pattern_object.search(text)

    @cached_property
    def _pattern_object(self) -> re.Pattern[str]:
        return re.compile(self.text)


class _HasPattern(Protocol):
    @property
    def pattern(self) -> Pattern: ...


E = TypeVar("E", bound=_HasPattern)


class Matcher(Generic[E]):
    """The entries in order, with what they answered for each text so far.

    Kernels' names run to a thousand characters, and a pattern has dozens of alternatives: Python takes 13 ms a name to
    try all. polars' automata take 0.1 s for a thousand names, but know no lookarounds: without these a pattern is found
    in all that the entry takes and in some more, which Python then tells apart.
    """

    def __init__(self, entries: Sequence[E]) -> None:
        self._entries = entries
        self._taken: dict[str, E | None] = {}

    def first(self, text: str) -> E | None:
        """The first entry whose pattern is found in the text; None: none is."""
        if text not in self._taken:
            self.learn([text])
        return self._taken[text]

    def learn(self, texts: Iterable[str]) -> None:
        """Finds the entries of all these at once, so that `first` knows them."""
        unknown = [text for text in dict.fromkeys(texts) if text not in self._taken]
        if len(unknown) <= _FEW and all(len(text) <= _LONG for text in unknown):
            for text in unknown:
                self._taken[text] = next((e for e in self._entries if e.pattern.search(text)), None)
            return
        if any(len(text) > _READ for text in unknown):
            self.learn(text[:_READ] for text in unknown)
            self._taken.update((text, self._taken[text[:_READ]]) for text in unknown)
            return
        left = pl.Series(unknown, dtype=pl.String)
        for entry in self._entries:
            if left.is_empty():
                return
            hits = left.filter(left.str.contains(_superset(entry.pattern)))
            taken = [text for text in hits if entry.pattern.search(text)]
            self._taken.update(dict.fromkeys(taken, entry))
            if taken:
                left = left.filter(~left.is_in(taken))
        self._taken.update(dict.fromkeys(left))


def _superset(pattern: Pattern) -> str:
    """The pattern as polars knows it, found wherever the pattern is."""
    text = _LOOKAROUND.sub("", pattern.text)
    for python, ascii_class in _ASCII:
        text = text.replace(python, ascii_class)
    return text


# The entries of the data files: patterns over names, and what each says of a name it is found in.


@dataclass(frozen=True, slots=True)
class Entry:
    """A pattern over names of kernels, or types of operators, and what has it; kernels.toml says what fields mean."""

    pattern: Pattern
    kernel_class: KernelClass
    collective: str | None
    label: str | None
    example: str
    products: bool = False


@dataclass(frozen=True, slots=True)
class PrecisionEntry:
    """A pattern over names of kernels, and the precision that it tells."""

    pattern: Pattern
    precision: str
    example: str


@cache
def kernel_entries() -> tuple[Entry, ...]:
    """Over kernels' names, in order: the first that is found decides."""
    return _entries("kernels.toml")


@cache
def operator_entries() -> tuple[Entry, ...]:
    """Over operators' types, likewise."""
    return _entries("operators.toml")


@cache
def precision_entries() -> tuple[PrecisionEntry, ...]:
    """Over kernels' names, likewise."""
    return tuple(
        PrecisionEntry(Pattern(row["pattern"]), row["precision"], row["example"]) for row in _rows("precisions.toml")
    )


@cache
def kernel_matcher() -> Matcher[Entry]:
    """The entry of each kernel's name."""
    return Matcher(kernel_entries())


@cache
def operator_matcher() -> Matcher[Entry]:
    """The entry of each operator's type."""
    return Matcher(operator_entries())


@cache
def precision_matcher() -> Matcher[PrecisionEntry]:
    """The entry of each kernel's name that tells its precision."""
    return Matcher(precision_entries())


def _entries(file: str) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            Pattern(f"(?i){row['pattern']}"),
            KernelClass(row["class"]),
            row.get("collective"),
            row.get("label"),
            row["example"],
            bool(row.get("products")),
        )
        for row in _rows(file)
    )


def _rows(file: str) -> list[dict[str, str]]:
    text = resources.files("xsp_analyze.classification").joinpath(file).read_text(encoding="utf-8")
    rows: list[dict[str, str]] = tomllib.loads(text)["entry"]
    return rows


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


PEER_COPY = r"(?i)\bp(?:to|2)p\b|peer"
"""Copies between devices: in a collective's call the copy engines are what communicates."""
_BY_NAME_FIRST = (KernelClass.COMMUNICATION, KernelClass.MIXTURE_OF_EXPERTS)
"""Classes that a kernel's name tells more surely than its operator's: a router's own `TopK` is no sort."""


def decide(
    kind: str, name: str, operator: Classified | None, layer: Classified | None, *, in_optimizer: bool
) -> Classified:
    """What `classify` answers, of what operator and layer were found to be."""
    if kind in _BY_KIND:
        is_of_collective = operator is not None and operator.kernel_class is KernelClass.COMMUNICATION
        return operator if operator and is_of_collective and re.search(PEER_COPY, name) else _BY_KIND[kind]
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

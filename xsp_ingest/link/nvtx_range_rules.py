"""What an NVTX range stands for: a step, a layer, an operator, a library call or just a stretch of the program."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.link.range_rules import FRAMEWORK_RANGES, one_of
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.ingester import Options

__all__ = ["RULES", "Rule", "classify", "is_backward", "operator_details", "plain_name"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Ranges whose name and domain match (empty: any) get this level and kind; the first such rule counts."""

    level: Level
    kind: Kind
    name: str = ""
    domain: str = ""


RULES: tuple[Rule, ...] = (
    # A module's call as torch.profiler names it and our runners mark it: one layer, however often called.
    Rule(Level.LAYER, Kind.MODULE, name=r"^nn\.Module: "),
    # Communication is a library's doing wherever it is said: ncclAllReduce, nccl:all_reduce.
    Rule(Level.LIBRARY, Kind.RANGE, name=r"^nccl[A-Z:_]"),
    # Domains in which libraries mark their own calls.
    Rule(
        Level.LIBRARY,
        Kind.RANGE,
        domain=r"(?i)^(nccl|nvshmem|mpi|ucx|ucp|uct|cudnn|cublas|cublaslt|cusparse|cusolver|cufft|curand|cutensor|nvjpeg"
        r"|nvtiff|nvimagecodec|cub|thrust|cccl|rmm|libcudf|raft|cufile|nixl|openacc|openmp|oshmem)\b",
    ),
    # TensorRT: one inference is one enqueue (asynchronous) or execute (synchronous) of an execution context.
    Rule(Level.MODEL, Kind.STEP, name=r"^I?ExecutionContext::(enqueue|execute)(V\d+)?$"),
    # TensorRT's other entry points (builder, runtime, engine) are calls of the library, not layers.
    Rule(Level.LIBRARY, Kind.RANGE, name=r"^I?(Builder|Runtime|CudaEngine|ExecutionContext|Refitter|Network\w*)::"),
    # Steps, iterations and batches, numbered or not: "step 3", "iteration12", "ProfilerStep#7", "train_step",
    # "batch 4/10" (torch.profiler, Megatron-LM, nanoGPT, Lightning, hand-written loops).
    Rule(
        Level.MODEL,
        Kind.STEP,
        name=r"(?i)^((train(ing)?|val(idation)?|eval(uation)?|test|infer(ence)?|profiler?|global|warm[ _-]?up)"
        r"[ _:.-]*)?(step|iter|iteration|batch|mini[ _-]?batch)([ _:#=.-]*\(?\d+\)?( ?(/|of) ?\d+)?)?$",
    ),
    # emit_nvtx numbers these like operators, which they are not.
    Rule(Level.APPLICATION, Kind.RANGE, name=one_of(FRAMEWORK_RANGES)),
    # An operator of PyTorch under its namespace, as emit_nvtx and --pytorch=autograd-nvtx write it.
    Rule(Level.OPERATOR, Kind.OPERATOR, name=r"^(aten|prim|torch|torchvision|torchaudio|c10d|quantized|autograd)::"),
    # Nodes that run in the backward pass: AddmmBackward0, torch::autograd::AccumulateGrad.
    Rule(Level.OPERATOR, Kind.OPERATOR, name=r"^(\w+::)*(\w+Backward\d*|AccumulateGrad)$"),
)
"""The defaults; a range that no rule matches is a layer. Ranges with torch's operator numbers are operators."""

_NUMBERS = r"(?:, (?:stashed )?seq = -?\d+)?(?:, op_id = \d+)?(?:, sizes = \[.*\])?(?:, input_op_ids = \[.*\])?$"
_SEQUENCE = r", (?:stashed )?seq = (\d+)"
_SHAPES = r", sizes = (\[.*?\])(?:, input_op_ids = .*)?$"
_QUALIFIED = r"^\w+::\w+(\.\w+)?$"  # any other namespace's operator: flash_attn::_flash_attn_forward
_BACKWARD = r"Backward\d*$|^autograd::engine::evaluate_function: |AccumulateGrad$"


def plain_name(text: pl.Expr) -> pl.Expr:
    """The text without what differs from call to call: operator and sequence numbers, sizes, input ids."""
    return text.str.replace(_NUMBERS, "")


def operator_details(text: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Sequence number and, as JSON, input shapes that torch wrote into the range's text; null where it did not."""
    sequence = text.str.extract(_SEQUENCE).cast(pl.Int64, strict=False).alias("sequence_number")
    return sequence, text.str.extract(_SHAPES).alias("input_shapes")


def is_backward(name: pl.Expr) -> pl.Expr:
    """Whether an operator's name is that of a node of the backward pass."""
    return name.str.contains(_BACKWARD)


def classify(ranges: pl.DataFrame, options: Options) -> pl.DataFrame:
    """Columns `level` and `kind` for ranges with columns `name`, `domain` and `numbered` (had torch's numbers)."""
    keys = ["name", "domain", "numbered"]
    kinds = ranges.select(keys).unique(maintain_order=True)
    found = [
        _place(name, domain or "", numbered=numbered, rules=_rules(options))
        for name, domain, numbered in kinds.iter_rows()
    ]
    if options.layer_ranges:
        # The user named the layers: what would be one by default only is not.
        found = [place or (Level.APPLICATION, Kind.RANGE) for place in found]
    places = [place or (Level.LAYER, Kind.RANGE) for place in found]
    kinds = kinds.with_columns(
        pl.Series("level", [str(level) for level, _ in places], dtype=pl.Categorical),
        pl.Series("kind", [str(kind) for _, kind in places], dtype=pl.Categorical),
    )
    return ranges.join(kinds, on=keys, how="left", nulls_equal=True, maintain_order="left").select("level", "kind")


def _rules(options: Options) -> Sequence[Rule]:
    own = [Rule(Level.MODEL, Kind.STEP, name=regex) for regex in options.model_ranges]
    own += [Rule(Level.LAYER, Kind.RANGE, name=regex) for regex in options.layer_ranges]
    replaced = Level.MODEL if options.model_ranges else None
    return (*own, *(rule for rule in RULES if rule.level != replaced))


def _place(name: str, domain: str, *, numbered: bool, rules: Sequence[Rule]) -> tuple[Level, Kind] | None:
    for rule in rules:
        if (not rule.name or re.search(rule.name, name)) and (not rule.domain or re.search(rule.domain, domain)):
            return rule.level, rule.kind
    if numbered or (not domain and re.search(_QUALIFIED, name)):
        return Level.OPERATOR, Kind.OPERATOR
    return None

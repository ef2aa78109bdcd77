"""Which level and kind a named range stands for: the rules as data, and the one function that applies them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_model import Kind, Level
from xsp_model.step_annotations import is_serving_step, parse_step_annotation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["ANNOTATIONS", "COMPILED_REGION", "KINETO", "KINETO_STEP", "NVTX", "Rule", "Rules", "classify", "one_of"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Ranges whose name and domain match (empty: any) are this; `numbered`: only those with torch's numbers.

    `reads`: only those whose name it takes.
    """

    level: Level
    kind: Kind
    name: str = ""
    domain: str = ""
    numbered: bool = False
    reads: Callable[[str], bool] | None = None

    def matches(self, name: str, domain: str, *, numbered: bool) -> bool:
        """Whether the range is one of these."""
        return (
            numbered >= self.numbered
            and (not self.name or bool(re.search(self.name, name)))
            and (not self.domain or bool(re.search(self.domain, domain)))
            and (self.reads is None or self.reads(name))
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """How one recorder's ranges are classified: by `fixed`, the user's patterns, then `defaults`; first match counts.

    What nothing matches is `otherwise`, but of the level application where the user named the layers.
    """

    defaults: tuple[Rule, ...]
    fixed: tuple[Rule, ...] = ()
    otherwise: Level = Level.LAYER


def one_of(patterns: Sequence[str]) -> str:
    """One regex that matches where any of the patterns does; nothing matches no pattern."""
    return "|".join(f"(?:{p})" for p in patterns) if patterns else r"[^\s\S]"


_BY_FRAMEWORKS = one_of(
    (
        r"^Optimizer\.",
        r"^enumerate\(DataLoader\)",
        r"^PyTorch Profiler",
        r"^(Distributed|FullySharded)?DataParallel\.",
        r"^\[pl\]",
        r"^\w+_data: .*\bcompile_id=",  # TorchDynamo's notes on its own phases
    )
)  # what PyTorch and Lightning annotate by themselves: no layers, whichever profiler recorded them

_SERVING = (
    # A step of a serving engine: execute_context_2(6144)_generation_3(3), step[DECODE bs=32].
    Rule(Level.MODEL, Kind.STEP, reads=is_serving_step),
    # Where other ranges are the steps it is no layer either, nor is a graph's capture.
    Rule(Level.APPLICATION, Kind.RANGE, reads=lambda name: parse_step_annotation(name) is not None),
)
_MODULE_CALL = Rule(Level.LAYER, Kind.MODULE, name=r"^nn\.Module: ")
_MODULE_RETURNED = Rule(Level.APPLICATION, Kind.RANGE, name=r"^nn\.Module outputs: ")  # no call of its own

COMPILED_REGION = r"^## Call CompiledFxGraph \S+ ##$|^CUDAGraphNode\.record|^Torch-Compiled Region"
"""Calls of compiled graphs, and the recording of one as a device graph, as PyTorch annotates them."""

NVTX = Rules(
    defaults=(
        # A module's call as torch.profiler names it and our runners mark it: one layer, however often called.
        _MODULE_CALL,
        _MODULE_RETURNED,
        # A call of a compiled graph, as emit_nvtx writes it and our runners mark it.
        Rule(Level.APPLICATION, Kind.RANGE, name=COMPILED_REGION),
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
        *_SERVING,
        # Steps, iterations and batches, numbered or not: "step 3", "iteration12", "ProfilerStep#7", "train_step",
        # "batch 4/10" (torch.profiler, Megatron-LM, nanoGPT, Lightning, hand-written loops).
        Rule(
            Level.MODEL,
            Kind.STEP,
            name=r"(?i)^((train(ing)?|val(idation)?|eval(uation)?|test|infer(ence)?|profiler?|global|warm[ _-]?up)"
            r"[ _:.-]*)?(step|iter|iteration|batch|mini[ _-]?batch)([ _:#=.-]*\(?\d+\)?( ?(/|of) ?\d+)?)?$",
        ),
        # emit_nvtx numbers these like operators, which they are not.
        Rule(Level.APPLICATION, Kind.RANGE, name=_BY_FRAMEWORKS),
        # An operator of PyTorch under its namespace, as emit_nvtx and --pytorch=autograd-nvtx write it.
        Rule(
            Level.OPERATOR, Kind.OPERATOR, name=r"^(aten|prim|torch|torchvision|torchaudio|c10d|quantized|autograd)::"
        ),
        # Nodes that run in the backward pass: AddmmBackward0, torch::autograd::AccumulateGrad.
        Rule(Level.OPERATOR, Kind.OPERATOR, name=r"^(\w+::)*(\w+Backward\d*|AccumulateGrad)$"),
        # Any other namespace's operator, flash_attn::_flash_attn_forward; and whatever has torch's operator numbers.
        Rule(Level.OPERATOR, Kind.OPERATOR, name=r"^\w+::\w+(\.\w+)?$", domain="^$"),
        Rule(Level.OPERATOR, Kind.OPERATOR, numbered=True),
    )
)
"""Ranges of NVTX and its like (roctx, MXNet's): all of a process's libraries and frameworks write into one stream."""

KINETO_STEP = r"^ProfilerStep#\d+$"

KINETO = Rules(
    # Calls of process groups come as annotations: a library's, whatever pattern of the user's fits their name too.
    fixed=(Rule(Level.LIBRARY, Kind.RANGE, name=r"^(nccl|gloo|mpi|ucc|rccl):"),),
    defaults=(
        Rule(Level.MODEL, Kind.STEP, name=KINETO_STEP),
        *_SERVING,
        Rule(Level.APPLICATION, Kind.RANGE, name=_BY_FRAMEWORKS),
        # A call of a compiled graph: what runs in it is of many layers.
        Rule(Level.APPLICATION, Kind.RANGE, name=COMPILED_REGION),
        _MODULE_CALL,
        _MODULE_RETURNED,
    ),
)
"""User annotations of torch.profiler: operators and modules are events of their own there, and it marks the steps."""

ANNOTATIONS = Rules(defaults=(), otherwise=Level.APPLICATION)
"""Annotations beside a recorder's own operators and steps, as XPlane's: nothing unless the user's pattern says so."""


def classify(
    ranges: pl.DataFrame, rules: Rules, *, model_ranges: Sequence[str] = (), layer_ranges: Sequence[str] = ()
) -> pl.DataFrame:
    """Columns `level` and `kind` for ranges by `name`, and by `domain` and `numbered` where they have these.

    The user's patterns take the place of the default rules for steps, and of the default for what no rule matches.
    """
    absent = {"domain": pl.lit(None, pl.String), "numbered": pl.lit(value=False)}
    keys = ranges.select("name", *(name if name in ranges.columns else absent[name].alias(name) for name in absent))
    ordered = tuple(_in_order(rules, model_ranges, layer_ranges))
    otherwise = (Level.APPLICATION if layer_ranges else rules.otherwise), Kind.RANGE
    distinct = keys.unique(maintain_order=True)
    meanings = [
        _first(ordered, name, domain or "", numbered=numbered) or otherwise
        for name, domain, numbered in distinct.rows()
    ]
    distinct = distinct.with_columns(
        pl.Series("level", [str(level) for level, _ in meanings], dtype=pl.Categorical),
        pl.Series("kind", [str(kind) for _, kind in meanings], dtype=pl.Categorical),
    )
    joined = keys.join(distinct, on=keys.columns, how="left", nulls_equal=True, maintain_order="left")
    return joined.select("level", "kind")


def _in_order(rules: Rules, model_ranges: Sequence[str], layer_ranges: Sequence[str]) -> Iterator[Rule]:
    yield from rules.fixed
    yield from (Rule(Level.MODEL, Kind.STEP, name=regex) for regex in model_ranges)
    yield from (Rule(Level.LAYER, Kind.RANGE, name=regex) for regex in layer_ranges)
    yield from (rule for rule in rules.defaults if not (model_ranges and rule.level == Level.MODEL))


def _first(rules: Sequence[Rule], name: str | None, domain: str, *, numbered: bool) -> tuple[Level, Kind] | None:
    if name is None:
        return None
    return next(((rule.level, rule.kind) for rule in rules if rule.matches(name, domain, numbered=numbered)), None)

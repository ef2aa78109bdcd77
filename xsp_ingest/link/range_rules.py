"""What a named range stands for by its text: a module of the model, an operator of PyTorch, or what a rule says."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

import polars as pl

from xsp_model import Finding, Kind, LedgerKind, Level
from xsp_model.step_annotations import is_serving_step, parse_step_annotation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "ANNOTATIONS",
    "BEGINS",
    "COMPILED_REGION",
    "ENGINE_STEP",
    "KINETO",
    "KINETO_STEP",
    "MAX_LENGTH",
    "NVTX",
    "ModuleText",
    "Rule",
    "Rules",
    "classify",
    "is_backward",
    "module_ranges",
    "module_text",
    "one_of",
    "operator_details",
    "plain_name",
]


# What vLLM, SGLang and TensorRT-LLM write as a module's range: a dict of its path and the shapes of its tensors.


BEGINS = r"""^\{\s*['"]Module['"]\s*:"""
"""How such a text begins, as a regex."""
MAX_LENGTH = 1 << 16
"""No longer text is read: a call with hundreds of tensors writes a tenth of it."""
_TOKEN = re.compile(r"""'([^'\\]*)'|"[^"\\]*"|[()]|\bNone\b|\bTrue\b|\bFalse\b|,(?=\s*[)\]}])""")
_JSON_OF = {"(": "[", ")": "]", "None": "null", "True": "true", "False": "false", ",": ""}
_FACTS = ("Module", "TrainableParams", "StaticParams", "Inputs", "Outputs")
_COMPILED = re.compile(r"^Torch Compiled Module \((input|output)\):")
_CLASSES = {
    "in_features": "Linear",
    "num_embeddings": "Embedding",
    "in_chan": "Conv",
    "num_features": "BatchNorm",
    "ceil_mode": "AvgPool",
    "output_size": "AdaptiveAvgPool",
    "filter_dim": "MaxPool",
    "scale_factor": "Upsample",
    "p": "Dropout",
    "in_place": "ReLU",
}
"""The class of torch.nn whose parameters have this name, the first that fits."""


@dataclass(frozen=True, slots=True)
class ModuleText:
    """Path and type of a module, and the shapes of its inputs as JSON; null: not said.

    `returned`: the range only says what the call before it returned; null: it says neither inputs nor outputs.
    """

    path: str
    layer_type: str
    shapes: str | None
    returned: bool | None


def module_text(text: str) -> ModuleText | None:
    """What the text says; None where it is too long or not of this form."""
    facts = _parse_dict(text) if len(text) <= MAX_LENGTH else {}
    path = facts.get("Module")
    if not isinstance(path, str) or not path.strip("' "):
        return None
    compiled = _COMPILED.match(path)
    path = path[compiled.end() :] if compiled else path.strip("' ")
    inputs = [s for name, value in facts.items() if name == "Inputs" or name not in _FACTS for s in _shapes(value)]
    returned = not inputs if inputs or "Outputs" in facts else None
    if compiled:
        returned = compiled[1] == "output"
    return ModuleText(path, _type(path, facts.get("StaticParams")), json.dumps(inputs) if inputs else None, returned)


def _parse_dict(text: str) -> Mapping[str, object]:
    """The dict that Python wrote, read as the JSON that it nearly is; empty where it is none."""
    try:
        facts = json.loads(_TOKEN.sub(_as_json, text))
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _as_json(token: re.Match[str]) -> str:
    return _JSON_OF.get(token[0], token[0]) if token[1] is None else json.dumps(token[1])


def _shapes(value: object) -> list[list[int]]:
    """The shapes in a list of shapes; of anything else none."""
    return [shape for shape in value if _is_shape(shape)] if isinstance(value, list) else []


def _is_shape(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(size) is int for size in value)


def _type(path: str, static: object) -> str:
    """The class of torch.nn that has these parameters; else the module's name in its parent, of a list's the list's."""
    parameters = static if isinstance(static, dict) else {}
    layer_type = next((name for key, name in _CLASSES.items() if key in parameters), None)
    if layer_type == "Conv":
        size = parameters.get("filter_dim")
        dimensions = f"{len(size)}d" if isinstance(size, list) else ""
        return f"Conv{'Transpose' if parameters.get('transposed') else ''}{dimensions}"
    return layer_type or next((part for part in reversed(path.split(".")) if part and not part.isdigit()), path)


# Ranges of modules whose text is a dict: one layer a module by its path, not one a text with other shapes.

_MODULE = "nn.Module: "  # which rules and layers know as the mark of a module's call, as our own runners write it
_RETURNED = "nn.Module outputs: "
_LAYERS = {"row": pl.Int64(), "layer_type": pl.String(), "path": pl.String(), "shapes": pl.String()}
_THREAD = ("process_id", "thread_id")
_Named = tuple[pl.DataFrame, pl.DataFrame, tuple[Finding, ...]]


def module_ranges(ranges: pl.DataFrame) -> _Named:
    """The ranges, those of modules with the path as their name; rows of `layers` for them; what could not be read.

    Takes row, name, text, start_ns, process_id and thread_id. A text is read once, however many ranges have it; where
    no range is of this form, that is all that is found out.
    """
    first = ranges["text"].str.starts_with("{").fill_null(value=False)
    marked = ranges.filter(first & ranges["text"].str.contains(BEGINS)) if first.any() else ranges.clear()
    if marked.is_empty():
        return ranges, pl.DataFrame(schema=_LAYERS), ()
    texts = marked["text"].unique(maintain_order=True)
    modules = marked.select("row", "text", "start_ns", *_THREAD).join(_read(texts), on="text", maintain_order="left")
    modules = modules.with_columns(_is_return(modules))
    mark = pl.when("returned").then(pl.lit(_RETURNED)).otherwise(pl.lit(_MODULE))
    names = modules.select("row", (mark + pl.col("path")).alias("module_name"))
    named = ranges.join(names, on="row", how="left", maintain_order="left")
    named = named.with_columns(pl.coalesce("module_name", "name").alias("name")).drop("module_name")
    unread = Finding(LedgerKind.MODULE_TEXT_UNREADABLE, count=marked.height - modules.height)
    layers = modules.filter(~pl.col("returned")).select(*_LAYERS)
    return named, layers, (unread,) if unread.count else ()


def _read(texts: Iterable[str]) -> pl.DataFrame:
    """A row for each text that can be read."""
    modules = {text: module for text in texts if (module := module_text(text))}
    read = [(text, m.path, m.layer_type, m.shapes, m.returned) for text, m in modules.items()]
    columns = {"text": pl.String, "path": pl.String, "layer_type": pl.String, "shapes": pl.String}
    return pl.DataFrame(read, schema={**columns, "returned": pl.Boolean}, orient="row")


def _is_return(modules: pl.DataFrame) -> pl.Series:
    """Whether each range only says what a call returned; where its text does not tell, by what stands before it.

    vLLM writes such a range behind every call, SGLang and TensorRT-LLM behind none. So of one module on one thread
    they take turns, and what is open is decided from the last range that says which it is.
    """
    returned = modules["returned"]
    if not returned.null_count() or not returned.any():
        return returned.fill_null(value=False)
    of_module = [*_THREAD, "path"]
    ordered = modules.with_row_index("at").sort(*of_module, "start_ns", "row")
    ordered = ordered.with_columns(
        pl.col("returned").is_not_null().cum_sum().over(of_module).alias("since"),
        pl.col("returned").forward_fill().over(of_module).fill_null(value=True).alias("last"),
    )
    position = pl.int_range(pl.len()).over(*of_module, "since") + (pl.col("since") == 0)
    turned = pl.when(position % 2 == 1).then(~pl.col("last")).otherwise("last")
    return ordered.with_columns(turned.alias("returned")).sort("at")["returned"]


# What PyTorch writes into the text of an operator's range: its name, and numbers and shapes that differ by call.

_NUMBERS = r"(?:, (?:stashed )?seq = -?\d+)?(?:, op_id = \d+)?(?:, sizes = \[.*\])?(?:, input_op_ids = \[.*\])?$"
_SEQUENCE = r", (?:stashed )?seq = (\d+)"
_SHAPES = r", sizes = (\[.*?\])(?:, input_op_ids = .*)?$"
_BACKWARD = r"Backward\d*$|^autograd::engine::evaluate_function: |AccumulateGrad$"


_OF_PYPROF = r"^\{'mod': '([^']*)', 'op': '([^']*)'.*$"  # and DLProf: the function called, its arguments' shapes
_STACK_OF_PYPROF = r"^\{'traceMarker': .*'funcStack': '([^']*)'.*$"


def plain_name(text: pl.Expr) -> pl.Expr:
    """The text without what differs from call to call: operator and sequence numbers, sizes, input ids, arguments."""
    called = text.str.replace(_NUMBERS, "").str.replace(_OF_PYPROF, "$1.$2")
    return called.str.replace(_STACK_OF_PYPROF, "$1")


def operator_details(text: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Sequence number and, as JSON, input shapes that torch wrote into the range's text; null where it did not."""
    sequence = text.str.extract(_SEQUENCE).cast(pl.Int64, strict=False).alias("sequence_number")
    return sequence, text.str.extract(_SHAPES).alias("input_shapes")


def is_backward(name: pl.Expr) -> pl.Expr:
    """Whether an operator's name is that of a node of the backward pass."""
    return name.str.contains(_BACKWARD)


# Which level and kind a named range stands for: the rules as data, and the one function that applies them.


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
ENGINE_STEP = r"^I?ExecutionContext::(enqueue|execute)(V\d+)?$"
"""TensorRT: one inference is one enqueue (asynchronous) or execute (synchronous) of an execution context."""
_ITERATION = Rule(
    # Steps, iterations and batches, numbered or not: "step 3", "iteration12", "ProfilerStep#7", "train_step",
    # "batch 4/10" (torch.profiler, Megatron-LM, nanoGPT, hand-written loops), and what Lightning names a batch.
    Level.MODEL,
    Kind.STEP,
    name=r"(?i)^((train(ing)?|val(idation)?|eval(uation)?|test|infer(ence)?|profiler?|global|warm[ _-]?up)"
    r"[ _:.-]*)?(step|iter|iteration|batch|mini[ _-]?batch)([ _:#=.-]*\(?\d+\)?( ?(/|of) ?\d+)?)?$"
    r"|^\[pl\]\[profile\]run_training_batch$",
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
        # TensorRT's own steps, unless ranges repeat around them (`steps.py`).
        Rule(Level.MODEL, Kind.STEP, name=ENGINE_STEP),
        # TensorRT's other entry points (builder, runtime, engine) are calls of the library, not layers.
        Rule(Level.LIBRARY, Kind.RANGE, name=r"^I?(Builder|Runtime|CudaEngine|ExecutionContext|Refitter|Network\w*)::"),
        *_SERVING,
        _ITERATION,
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
        _ITERATION,
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

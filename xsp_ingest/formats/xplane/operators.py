"""Operators, those of compiled programs and TensorFlow's own, and the calls of layers in whose scopes they lie."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.formats.xplane.host import Role
from xsp_ingest.formats.xplane.instructions import INSTRUCTION_COLUMNS
from xsp_ingest.formats.xplane.wide import is_backward, wide
from xsp_ingest.link.nest import nest
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xsp_ingest.ingester import LayerScope

__all__ = [
    "COLUMNS",
    "SERIES",
    "around",
    "chain_of",
    "framework_rows",
    "instructions",
    "main_program",
    "module_rows",
    "operator_rows",
    "program_rows",
    "recorded_operations",
    "with_names",
]

_THREAD = ("process_id", "thread_id")
_OUTPUT = "output"
_TYPES = {  # of tensorflow/core/framework/types.proto
    1: "float",
    2: "double",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "half",
    22: "uint32",
    23: "uint64",
}
_SIZES = r"^\[(?:\d{1,18}(?:,\d{1,18})*)?\]$"


def framework_rows(events: pl.DataFrame) -> pl.DataFrame:
    """Wide rows, with sizes and type of the result of operators that made one."""
    operators = events.filter(pl.col("role") == Role.OPERATOR).with_row_index("operator_row")
    made = _made_outputs(operators, events)
    rows = operators.join(made, on="operator_row", how="left", maintain_order="left").select(
        *_THREAD,
        "start_ns",
        "duration_ns",
        pl.col("operator").alias("name"),
        pl.col("operator_type").alias("layer_type"),
        "shape",
        "output_shape",
        "output_dtype",
    )
    return wide(rows, Level.OPERATOR, Kind.OPERATOR)


def _made_outputs(operators: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """operator_row, output_shape (JSON) and output_dtype of operators in which memory was made for one result.

    An operator that writes into its input's memory makes none.
    """
    around = operators.select(
        *_THREAD, "start_ns", "operator_row", "operator", (pl.col("start_ns") + pl.col("duration_ns")).alias("until_ns")
    ).sort("start_ns")
    sizes = pl.col("shape").cast(pl.String)
    results = (
        events.filter(pl.col("role") == Role.MEMORY, pl.col("region_type").cast(pl.String) == _OUTPUT)
        .filter(sizes.str.contains(_SIZES))
        .select(*_THREAD, "start_ns", pl.col("tf_op").cast(pl.String).alias("operator"), sizes, "data_type")
        .sort("start_ns")
    )
    return (
        results.join_asof(around, on="start_ns", by=[*_THREAD, "operator"], check_sortedness=False)
        .filter(pl.col("start_ns") < pl.col("until_ns"))
        .group_by("operator_row", maintain_order=True)
        .agg(
            pl.len().alias("results"),
            pl.col("shape").first().alias("output_shape"),
            pl.col("data_type")
            .first()
            .replace_strict(_TYPES, default=None, return_dtype=pl.String)
            .alias("output_dtype"),
        )
        .filter(pl.col("results") == 1)
        .drop("results")
    )


# Operators of compiled programs: a span for each run of an instruction, one around those of a framework operation.
_OP = ("hlo_module", "program_id", "hlo_op")
SERIES = (*_THREAD, *_OP)
"""Work that differs in one of these is of another run of an instruction."""
COLUMNS = (*_THREAD, "start_ns", "duration_ns", *_OP, "execution", "flops", "bytes_accessed", "key")
_INSTANCE = r"\.\d+$"


def recorded_operations(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """One row an instruction: the framework's name for it, as statistics of its work say.

    It is in `name`, or in `tf_op` with a colon at its end; XLA writes `XlaModule:` where it knows none.
    """
    tf_op = pl.col("tf_op").cast(pl.String).str.strip_suffix(":")
    name = pl.coalesce(pl.col("name").cast(pl.String), pl.when(tf_op != "XlaModule").then(tf_op))
    operations = [
        frame.filter(pl.col("hlo_op").is_not_null()).select(
            pl.col("hlo_module").cast(pl.String),
            "program_id",
            pl.col("hlo_op").cast(pl.String),
            pl.when(name != "").then(name).alias("framework_op"),
        )
        for frame in frames
    ]
    return pl.concat(operations).drop_nulls("framework_op").unique(list(_OP), keep="first", maintain_order=True)


def instructions(host: pl.DataFrame) -> pl.DataFrame:
    """One row a run of an instruction on the host: its thunk, or where there is none the calls made for it."""
    thunks = _thunks(host)
    calls = host.filter(pl.col("role") == Role.CALL, pl.col("hlo_op").is_not_null()).with_columns(
        pl.col("hlo_op", "hlo_module").cast(pl.String)
    )
    bare = _outside(calls, thunks)
    made = span_series(bare.with_columns(execution=pl.lit(None, pl.Int64), key=pl.lit(None, pl.Int64)), "series")
    return pl.concat([thunks.select(COLUMNS), made.select(COLUMNS)])


def _thunks(host: pl.DataFrame) -> pl.DataFrame:
    """Thunks with the program they are of: their own statistics say, or the program's run around them."""
    thunks = _inside(host.filter(pl.col("role") == Role.THUNK), _runs(host))
    return thunks.with_columns(
        pl.coalesce(pl.col("hlo_op").cast(pl.String), "operator").alias("hlo_op"),
        pl.coalesce(pl.col("hlo_module").cast(pl.String), "module_around").alias("hlo_module"),
        pl.coalesce("program_id", "program_around").alias("program_id"),
        pl.coalesce("run_id", "run").alias("execution"),
        pl.lit(None, pl.Int64).alias("key"),
    )


def _runs(host: pl.DataFrame) -> pl.DataFrame:
    """Runs of programs: _THREAD, start_ns, until_ns, run, module_around and, as calls inside say, program_around."""
    runs = (
        host.filter(pl.col("role") == Role.MODULE)
        .with_row_index("run")
        .select(
            *_THREAD,
            "start_ns",
            pl.col("operator").alias("module_around"),
            pl.col("run").cast(pl.Int64),
            (pl.col("start_ns") + pl.col("duration_ns")).alias("until_ns"),
        )
        .sort("start_ns")
    )
    calls = host.filter(pl.col("role") == Role.CALL, pl.col("program_id").is_not_null())
    of_module = pl.col("hlo_module").cast(pl.String) == pl.col("module_around")
    programs = (
        _inside(calls.select(*_THREAD, "start_ns", "hlo_module", "program_id"), runs)
        .filter(of_module)
        .group_by("run")
        .agg(pl.col("program_id").first().alias("program_around"))
    )
    return runs.join(programs, on="run", how="left", maintain_order="left")


def _inside(events: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """The events in order of start with the columns of the run that each begins in; null: in none."""
    around = [name for name in runs.columns if name not in {*_THREAD, "start_ns"}]
    inside = pl.col("start_ns") < pl.col("until_ns")
    return (
        events.sort("start_ns")
        .join_asof(runs, on="start_ns", by=list(_THREAD), check_sortedness=False)
        .with_columns(pl.when(inside).then(name).alias(name) for name in around)
    )


def _outside(calls: pl.DataFrame, thunks: pl.DataFrame) -> pl.DataFrame:
    """The calls that lie in no thunk of their instruction on their thread."""
    by = [*_THREAD, "hlo_op"]
    windows = thunks.select(*by, "start_ns", (pl.col("start_ns") + pl.col("duration_ns")).alias("until_ns")).sort(
        "start_ns"
    )
    placed = calls.sort("start_ns").join_asof(windows, on="start_ns", by=by, check_sortedness=False)
    return placed.filter((pl.col("start_ns") >= pl.col("until_ns")).fill_null(value=True))


def span_series(work: pl.DataFrame, series: str) -> pl.DataFrame:
    """One row around each unbroken series of work for one instruction on one thread; `series` numbers them."""
    return around(number_series(work, series, SERIES), series)


def number_series(
    work: pl.DataFrame, series: str, keys: Iterable[str], *, again: pl.Expr | None = None
) -> pl.DataFrame:
    """The work in order, with the number of the unbroken series of equal keys; `again` tells where one begins anew."""
    changed = pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift()) for key in keys)
    if again is not None:
        changed |= again
    return work.sort(*_THREAD, "start_ns", "duration_ns").with_columns(
        changed.fill_null(value=True).cum_sum().cast(pl.Int64).alias(series)
    )


def around(rows: pl.DataFrame, series: str) -> pl.DataFrame:
    """One row a series, from its first start to its last end; other columns are those of its first row.

    Where the series is the column `key`, so it stays.
    """
    end = (pl.col("start_ns") + pl.col("duration_ns")).max()
    others = [name for name in rows.columns if name not in {series, "start_ns", "duration_ns"}]
    return rows.group_by(series, maintain_order=True).agg(
        *(pl.col(name).first() for name in others),
        (end - pl.col("start_ns").min()).alias("duration_ns"),
        pl.col("start_ns").min(),
    )


def with_names(ops: pl.DataFrame, recorded: pl.DataFrame, programs: pl.DataFrame) -> pl.DataFrame:
    """The runs of instructions with `framework_op`, `opcode` and INSTRUCTION_COLUMNS.

    The framework's name is the one that statistics say, else the program's.
    """
    loose = ["hlo_module", "hlo_op"]
    names = programs.drop(INSTRUCTION_COLUMNS)
    for number, table in enumerate((recorded, names)):
        exact = table.filter(pl.col("program_id").is_not_null())
        ops = ops.join(exact, on=list(_OP), how="left", maintain_order="left", suffix=f"_{number}")
        any_program = table.drop("program_id").unique(loose, keep="first", maintain_order=True)
        ops = ops.join(any_program, on=loose, how="left", maintain_order="left", suffix=f"_{number}_any")
    return _with_work(
        ops.with_columns(
            pl.coalesce("framework_op", "framework_op_0_any", "framework_op_1", "framework_op_1_any").alias(
                "framework_op"
            ),
            pl.coalesce("opcode", "opcode_1_any", pl.col("hlo_op").str.replace(_INSTANCE, "")).alias("opcode"),
        ).select(*COLUMNS, "framework_op", "opcode"),
        programs,
    )


def _with_work(ops: pl.DataFrame, programs: pl.DataFrame) -> pl.DataFrame:
    """The runs with INSTRUCTION_COLUMNS: of their program, else of the only one of its name where numbers are missing.

    Programs of one name differ in their sizes.
    """
    loose = ["hlo_module", "hlo_op"]
    described = programs.select(*_OP, *INSTRUCTION_COLUMNS)
    only = described.filter(pl.len().over(loose) == 1).rename({"program_id": "only_program"})
    exact = described.filter(pl.col("program_id").is_not_null())
    joined = ops.join(exact, on=list(_OP), how="left", maintain_order="left").join(
        only, on=loose, how="left", maintain_order="left", suffix="_only"
    )
    is_without_number = pl.any_horizontal(pl.col("program_id", "only_program").is_null())
    return joined.select(
        *ops.columns,
        *(pl.coalesce(name, pl.when(is_without_number).then(f"{name}_only")) for name in INSTRUCTION_COLUMNS),
    )


def main_program(ops: pl.DataFrame, work: pl.DataFrame) -> str | None:
    """The compiled program that took most time: on devices, or where they ran nothing of any on the host."""
    for frame in (work, ops):
        module = pl.col("hlo_module").cast(pl.String)
        programs = frame.filter(pl.col("hlo_module").is_not_null()).group_by(module).agg(pl.col("duration_ns").sum())
        if programs.height:
            return str(programs.sort("duration_ns", "hlo_module", descending=[True, False])["hlo_module"][0])
    return None


def operator_rows(ops: pl.DataFrame) -> pl.DataFrame:
    """Wide rows: a span around each framework operation first, then the instructions inside."""
    again = pl.col("hlo_op").eq(pl.col("hlo_op").shift())
    keys = (*_THREAD, "hlo_module", "program_id", "execution", "framework_op")
    outer = around(number_series(ops, "series", keys, again=again), "series").filter(
        pl.col("framework_op").is_not_null()
    )
    return pl.concat(
        [
            wide(
                outer.select(
                    *_THREAD,
                    "start_ns",
                    "duration_ns",
                    pl.col("framework_op").alias("name"),
                    pl.col("framework_op").str.extract(r"([^/]+)/?$").alias("layer_type"),
                    "source_lines",
                ),
                Level.OPERATOR,
                Kind.OPERATOR,
            ),
            wide(
                ops.select(
                    *_THREAD,
                    "start_ns",
                    "duration_ns",
                    pl.col("hlo_op").alias("name"),
                    pl.col("opcode").alias("layer_type"),
                    pl.col("framework_op").str.contains("transpose(", literal=True).alias("is_backward"),
                    "flops",
                    "bytes_accessed",
                    *INSTRUCTION_COLUMNS,
                    "key",
                ),
                Level.OPERATOR,
                Kind.OPERATOR,
            ),
        ]
    )


def program_rows(host: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Wide rows: each run of a compiled program on a thread, as the host says or from its first to its last thunk."""
    recorded = host.filter(pl.col("role") == Role.MODULE).select(
        *_THREAD, "start_ns", "duration_ns", pl.col("operator").alias("name")
    )
    threads = recorded.select("process_id", "thread_id").unique()
    loose = ops.filter(pl.col("execution").is_not_null(), pl.col("hlo_module").is_not_null()).join(
        threads, on=list(_THREAD), how="anti"
    )
    runs = around(loose.with_columns(run=pl.struct(*_THREAD, "hlo_module", "execution").rank("dense")), "run").select(
        *_THREAD, "start_ns", "duration_ns", pl.col("hlo_module").alias("name")
    )
    return wide(pl.concat([recorded, runs]), Level.MODEL, Kind.RANGE)


# Calls of a model's layers: operators whose names lie in a layer's scope, one after the other on a thread.
#
# A compiled graph calls no layers, but its operators keep the scopes they were made in: `net/conv1/Conv2D`,
# `gradient_tape/net/conv1/Conv2DBackpropFilter`, `jit(step)/transpose(jvp(net))/conv1/dot_general`. Which scopes are
# layers is known to whoever ran the model, not to the profile; see `Options.layer_scopes`.

_PROGRAM = re.compile(r"\bp?jit\([^()]*\)/?")
_TRANSFORMED = re.compile(r"\b\w+\(([^()]*)\)")  # jvp(net), transpose(net), vmap(net): the scope, transformed


def chain_of(name: str, scopes: Mapping[str, LayerScope]) -> tuple[str, ...]:
    """The scopes of the layers around an operator of this name, the outermost first; empty where there are none.

    The first position in the name where a known scope begins counts, and of those there the longest.
    """
    parts = [part for part in _plain(name).split("/") if part]
    for first in range(len(parts)):
        chain = tuple(
            scope for last in range(first, len(parts)) if (scope := "/".join(parts[first : last + 1])) in scopes
        )
        if chain:
            return chain
    return ()


def _plain(name: str) -> str:
    """The name without what JAX's transformations put around its scopes."""
    while (inner := _TRANSFORMED.sub(r"\1", _PROGRAM.sub("", name))) != name:
        name = inner
    return name


def module_rows(
    operators: pl.DataFrame, ranges: pl.DataFrame, steps: pl.DataFrame, scopes: Mapping[str, LayerScope]
) -> tuple[pl.DataFrame, list[Finding]]:
    """Wide rows of the layers' calls, and how many operators lie in none.

    `operators`, `ranges` and `steps` are wide rows. A call ends where on its thread another layer's operator runs,
    the range around it ends, a step begins, or the backward pass does.
    """
    none = wide(operators.clear(), Level.LAYER, Kind.MODULE)
    if not scopes or operators.is_empty():
        return none, []
    top = _outermost(operators, ranges)
    names = top["name"].unique()
    chains = {name: chain_of(name, scopes) for name in names.to_list()}
    depth = max((len(chain) for chain in chains.values()), default=0)
    placed = _in_steps(top, steps).sort(*_THREAD, "start_ns", "duration_ns")
    calls = [_calls(placed, chains, level) for level in range(depth)]
    loose = top.filter(pl.col("name").is_in([name for name, chain in chains.items() if not chain]))
    frames = [_with_layers(each, scopes) for each in calls]
    rows = wide(pl.concat(frames), Level.LAYER, Kind.MODULE) if frames else none
    return rows, [
        Finding(LedgerKind.OPERATORS_OUTSIDE_LAYERS, count=loose.height, duration_ns=int(loose["duration_ns"].sum()))
    ]


def _outermost(operators: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """The operators that no other one holds, with `held_in`, the number of the range around each (-1: none)."""
    columns = (*_THREAD, "start_ns", "duration_ns", "name")
    both = pl.concat(
        [
            ranges.select(*columns, pl.lit(0, pl.Int64).alias("rank"), pl.lit(value=False).alias("backward")),
            operators.select(*columns, pl.lit(1, pl.Int64).alias("rank"), is_backward().alias("backward")),
        ]
    ).with_columns(pl.col("name").cast(pl.String), pl.col("duration_ns").fill_null(0))
    both = both.sort("start_ns", maintain_order=True)
    thread = both.select(pl.struct(_THREAD).rank("dense").cast(pl.Int32) - 1).to_series().to_numpy()
    start, rank = both["start_ns"].to_numpy(), both["rank"].to_numpy()
    end = start + both["duration_ns"].to_numpy()
    parent = nest(thread, start, end, rank.astype(np.int8), threads=int(thread.max(initial=0)) + 1).parent
    outermost = (rank == 1) & (np.append(rank, 0)[parent] == 0)
    return both.with_columns(pl.Series("held_in", parent)).filter(pl.Series(outermost))


def _in_steps(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The rows with `step`, the number of steps begun by then."""
    starts = steps["start_ns"].sort().to_numpy()
    begun = np.searchsorted(starts, rows["start_ns"].to_numpy(), side="right")
    return rows.with_columns(pl.Series("step", begun, dtype=pl.Int64))


def _calls(rows: pl.DataFrame, chains: Mapping[str, Sequence[str]], depth: int) -> pl.DataFrame:
    """One row around each unbroken series of operators whose layers are the same down to this depth."""
    keys = {name: "\n".join(chain[: depth + 1]) for name, chain in chains.items() if len(chain) > depth}
    key = pl.col("name").replace_strict(keys, default=None, return_dtype=pl.String)
    keyed = rows.with_columns(key=key)
    changed = pl.any_horizontal(
        pl.col(name).ne_missing(pl.col(name).shift()) for name in (*_THREAD, "held_in", "step", "backward", "key")
    )
    end = (pl.col("start_ns") + pl.col("duration_ns")).max()
    return (
        keyed.with_columns(series=changed.fill_null(value=True).cum_sum())
        .filter(pl.col("key").is_not_null())
        .group_by("series", maintain_order=True)
        .agg(
            *(pl.col(name).first() for name in _THREAD),
            (end - pl.col("start_ns").min()).alias("duration_ns"),
            pl.col("start_ns").min(),
            pl.col("key").first().str.split("\n").list.last().alias("scope"),
        )
    )


def _path(scope: str, scopes: Mapping[str, LayerScope]) -> str:
    """The names of the layers from the outermost down to this one, each without what it shares with the one before."""
    names = [scopes[each].name for each in chain_of(f"{scope}/", scopes)]
    return ".".join(name.removeprefix(f"{outer}/") for outer, name in zip(["", *names], names, strict=False))


def _with_layers(calls: pl.DataFrame, scopes: Mapping[str, LayerScope]) -> pl.DataFrame:
    """The calls under their layers' names, with type, path and position among the layers."""
    named = pl.DataFrame(
        [
            (scope, layer.name, layer.type or None, layer.position, _path(scope, scopes))
            for scope, layer in scopes.items()
        ],
        schema={
            "scope": pl.String,
            "name": pl.String,
            "layer_type": pl.String,
            "place": pl.Int64,
            "path": pl.String,
        },
        orient="row",
    )
    return calls.join(named, on="scope", how="left", maintain_order="left").drop("scope")

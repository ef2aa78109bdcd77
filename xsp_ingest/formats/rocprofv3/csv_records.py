"""From the CSV files of one process to the common columns, a few MiB at a time."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.content import cut_off, lines
from xsp_ingest.formats.rocprofv3.outputs import OutputTable, plain_heading
from xsp_ingest.formats.rocprofv3.records import (
    API,
    COPY,
    COUNT,
    DEVICE,
    KERNEL,
    Records,
    plain_kernel_name,
    with_counted,
)
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["from_tables", "read_table"]

_HZ_PER_MHZ = 1_000_000


def from_tables(paths: Mapping[OutputTable, list[Path]]) -> Records:
    """The records of the files of one process; agents are numbered among the GPUs where they are listed."""
    parts = {table: [_read(path, table) for path in files] for table, files in paths.items()}
    agents = pl.concat(parts.get(OutputTable.AGENTS, []), how="diagonal") if parts.get(OutputTable.AGENTS) else None
    numbers = _numbers(agents)
    calls = _shape_parts(parts.get(OutputTable.CALLS, []), API, _API)
    counts = _shape_parts(parts.get(OutputTable.COUNTS, []), COUNT, _COUNT)
    process = pl.concat([calls["process"], counts["process"]]).unique().to_list()
    own = process[0] if len(process) == 1 else None if process else 0
    kernels = _shape_parts(parts.get(OutputTable.KERNELS, []), KERNEL, _KERNEL)
    counted = _shape_parts(parts.get(OutputTable.COUNTS, []), KERNEL, _KERNEL)
    return Records(
        _with_gpu_numbers(with_counted(*(_of_process(rows, own) for rows in (kernels, counted))), numbers),
        _of_process(_copies(parts.get(OutputTable.COPIES, []), numbers), own),
        calls,
        pl.DataFrame(schema=dict(DEVICE)) if agents is None else _devices(agents),
        _of_process(counts, own),
    )


_TIMES = {
    "process": "Process_Id",
    "thread": "Thread_Id",
    "correlation": "Correlation_Id",
    "start": "Start_Timestamp",
    "end": "End_Timestamp",
}
_SIZES = {
    f"{ours}_{axis.lower()}": f"{theirs}_{axis}"
    for ours, theirs in (("threads", "Grid_Size"), ("block", "Workgroup_Size"))
    for axis in "XYZ"
}
_KERNEL = {
    **_TIMES,
    "agent": "Agent_Id",
    "stream": "Stream_Id",
    "name": "Kernel_Name",
    "dispatch": "Dispatch_Id",
    **_SIZES,
    "registers": "VGPR_Count",
    "accumulation_registers": "Accum_VGPR_Count",
    "shared": "LDS_Block_Size",
}
_COPY = {
    **_TIMES,
    "source": "Source_Agent_Id",
    "agent": "Destination_Agent_Id",
    "stream": "Stream_Id",
    "direction": "Direction",
    "bytes": "Bytes",
}
_API = {**_TIMES, "domain": "Domain", "name": "Function"}
_COUNT = {"process": "Process_Id", "dispatch": "Dispatch_Id", "counter": "Counter_Name", "value": "Counter_Value"}
_OLDER = {"LDS_Block_Size": "Group_Segment_Size", "Stream_Id": "Queue_Id", "Destination_Agent_Id": "Source_Agent_Id"}
"""What else a column was called, or is taken from where a version does not write it."""


def read_table(path: Path) -> pl.DataFrame:
    """Every cell as text; XspError where the file is no table or is cut off."""
    try:
        frames = [frame.rename(plain_heading) for frame in _blocks(path)]
        return pl.concat(frames) if frames else pl.DataFrame()
    except pl.exceptions.PolarsError as error:
        raise XspError("the rocprofv3 CSV cannot be read as a table", path=path) from error


def _read(path: Path, table: OutputTable) -> pl.DataFrame:
    rows = read_table(path)
    if not table.value <= set(rows.columns):
        raise XspError("the header of the rocprofv3 CSV is damaged", path=path)
    return rows


def _blocks(path: Path) -> Iterator[pl.DataFrame]:
    """Every cell as text."""
    head = b""
    for block in lines(path):
        if not block.endswith(b"\n"):
            raise cut_off(path, "its last row has no line end, which its tool always writes")
        content = head + block
        head = head or block.lstrip(b"\xef\xbb\xbf\r\n ").partition(b"\n")[0] + b"\n"
        yield pl.read_csv(io.BytesIO(content), infer_schema=False, truncate_ragged_lines=True, encoding="utf8-lossy")


def _shape_parts(
    parts: list[pl.DataFrame], columns: Mapping[str, pl.DataType], names: Mapping[str, str]
) -> pl.DataFrame:
    shaped = [_one(part, columns, names) for part in parts]
    return pl.concat(shaped) if shaped else pl.DataFrame(schema=dict(columns))


def _one(part: pl.DataFrame, columns: Mapping[str, pl.DataType], names: Mapping[str, str]) -> pl.DataFrame:
    expressions = []
    for ours, kind in columns.items():
        theirs = names[ours]
        theirs = theirs if theirs in part.columns else _OLDER.get(theirs, theirs)
        if theirs not in part.columns:
            expressions.append(pl.lit(None, dtype=kind).alias(ours))
        elif ours in _AGENTS:
            expressions.append(_agent(pl.col(theirs)).alias(ours))
        elif kind == pl.Int64:
            expressions.append(_number(pl.col(theirs)).alias(ours))
        elif kind == pl.Float64:
            expressions.append(pl.col(theirs).cast(kind, strict=False).alias(ours))
        else:
            expressions.append(pl.col(theirs).alias(ours))
    shaped = part.select(expressions)
    if "bytes" in columns or "name" not in columns or "agent" not in columns:
        return shaped
    kernels = {name: plain_kernel_name(name) for name in shaped["name"].drop_nulls().unique().to_list()}
    return shaped.with_columns(pl.col("name").replace(kernels))


_AGENTS = ("agent", "source")


def _agent(text: pl.Expr) -> pl.Expr:
    """The number of the agent in `4` and `Agent 4`, and of the GPU (`GPU 0`) as -1 and below."""
    return (
        pl.when(text.str.starts_with("GPU"))
        .then(-1 - _number(text))
        .when(~text.str.starts_with("CPU"))
        .then(_number(text))
    )


def _number(text: pl.Expr) -> pl.Expr:
    """`4`, `Agent 4`."""
    return text.str.extract(r"(-?\d+)\s*$").cast(pl.Int64, strict=False)


def _numbers(agents: pl.DataFrame | None) -> dict[int, int]:
    """A GPU's number among the GPUs for the number of its agent."""
    if agents is None:
        return {}
    gpus = agents.filter(pl.col("Agent_Type") == "GPU").select(_number(pl.col("Logical_Node_Id"))).to_series()
    return {node: index for index, node in enumerate(gpus.drop_nulls().unique().sort().to_list())}


def _of_process(rows: pl.DataFrame, process: int | None) -> pl.DataFrame:
    return rows.with_columns(pl.col("process").fill_null(pl.lit(process, pl.Int64)))


def _copies(parts: list[pl.DataFrame], numbers: Mapping[int, int]) -> pl.DataFrame:
    """A copy is its source's; where that is the host, its destination's."""
    rows = _shape_parts(parts, {"source": pl.Int64(), **COPY}, _COPY)
    ends = _with_gpu_numbers(_with_gpu_numbers(rows, numbers, "source"), numbers, "agent")
    of_device = [pl.col("direction").str.contains(f"(?i){end}") for end in ("DEVICE_TO_", "TO_DEVICE")]
    source, destination = (pl.when(is_it).then(end) for is_it, end in zip(of_device, ("source", "agent"), strict=True))
    return ends.with_columns(pl.coalesce(source, destination).alias("agent")).select(*COPY)


def _with_gpu_numbers(rows: pl.DataFrame, numbers: Mapping[int, int], column: str = "agent") -> pl.DataFrame:
    """The GPU's number in place of the agent's, where agents are listed."""
    agent = pl.col(column)
    number = agent.replace_strict(numbers, default=None, return_dtype=pl.Int64) if numbers else agent
    return rows.with_columns(pl.when(agent < 0).then(-1 - agent).otherwise(number).alias(column))


def _devices(agents: pl.DataFrame) -> pl.DataFrame:
    gpus = agents.filter(pl.col("Agent_Type") == "GPU")
    own = {name: name in gpus.columns for name in ("Product_Name", "Name", "Cu_Count", "Max_Engine_Clk_Fcompute")}
    text = [pl.col(name) for name in ("Product_Name", "Name") if own[name]]
    clock = _number(pl.col("Max_Engine_Clk_Fcompute")) * _HZ_PER_MHZ if own["Max_Engine_Clk_Fcompute"] else pl.lit(None)
    return (
        gpus.select(
            _number(pl.col("Logical_Node_Id")).rank("dense").cast(pl.Int64).sub(1).alias("device_id"),
            pl.lit(None, pl.Int64).alias("process_id"),
            (pl.coalesce(text) if text else pl.lit(None, pl.String)).alias("name"),
            (_number(pl.col("Cu_Count")) if own["Cu_Count"] else pl.lit(None, pl.Int64)).alias("multiprocessor_count"),
            clock.cast(pl.Int64).alias("clock_hz"),
            pl.lit(None, pl.Int64).alias("memory_bytes"),
        )
        .drop_nulls("device_id")
        .unique("device_id", keep="first", maintain_order=True)
    )

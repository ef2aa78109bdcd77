"""The tables of a trace: every column with its type, unit and a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["REFERENCES", "SCHEMA_VERSION", "TABLES", "ColumnSpec", "TableSpec"]

SCHEMA_VERSION = 6
"""Raised whenever a bundle written before could no longer be read as it stands; see `upgrade`."""

_INT = pa.int64()
_LABEL = pa.dictionary(pa.int32(), pa.string())
_TEXT = pa.string()


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column: Arrow type, unit ("" for none), whether null (unknown) is allowed, and what it says."""

    name: str
    type: pa.DataType
    doc: str
    unit: str = ""
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table: its columns and the total order its rows stand in."""

    name: str
    doc: str
    columns: tuple[ColumnSpec, ...]
    order: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.columns])


def _key(name: str, doc: str, kind: pa.DataType = _INT) -> ColumnSpec:
    return ColumnSpec(name, kind, doc, nullable=False)


def _ns(name: str, doc: str, *, nullable: bool = True) -> ColumnSpec:
    return ColumnSpec(name, _INT, doc, "ns", nullable)


def _bytes(name: str, doc: str) -> ColumnSpec:
    return ColumnSpec(name, _INT, doc, "byte")


_SPAN_ID = _key("span_id", "The span in `spans` that this row describes.")

_RUNS = TableSpec(
    "runs",
    "One row a run: one process, rank or session whose files were read together.",
    (
        _key("run_id", "Number of the run, from 0."),
        ColumnSpec("rank", _INT, "Rank in a distributed job."),
        ColumnSpec("world_size", _INT, "Ranks in the job."),
        ColumnSpec("level_captured", _TEXT, "M, ML or MLG: the deepest level the profiler recorded."),
        ColumnSpec("profiler", _TEXT, "The tool that wrote the files, with its version."),
        ColumnSpec("format", _TEXT, "Name of the ingester that read them."),
        ColumnSpec("framework", _TEXT, "Framework and version, where the files say."),
        ColumnSpec("model", _TEXT, "Name of the model, where known."),
        ColumnSpec("batch_size", _INT, "Inputs per step, where known."),
        ColumnSpec(
            "role",
            _TEXT,
            "Of a merged profile: model, layers, kernels or counters; graph_capture; null in a plain trace.",
        ),
        ColumnSpec("counters", _TEXT, "Names of the counters the run was taken for, as JSON; null: none."),
        ColumnSpec("warmup_steps", _INT, "Steps run before the first one recorded."),
        ColumnSpec("device_name", _TEXT, "The device it ran on, as the run's own description names it."),
        ColumnSpec("serialised", pa.bool_(), "Whether the device was synchronised after each layer."),
        ColumnSpec("layer_source", _TEXT, "What the layers were taken from: module, range, operator or none."),
        _ns("epoch_ns", "Unix time of this trace's time 0."),
        _ns("clock_origin_ns", "The source's own time stamp at this trace's time 0.", nullable=False),
        ColumnSpec("source_path", _TEXT, "File name of the source, without folders."),
        ColumnSpec("source_sha256", _TEXT, "Digest of the source's bytes."),
        ColumnSpec("source_bytes", _INT, "Size of the source.", "byte"),
    ),
    ("run_id",),
)

_SPANS = TableSpec(
    "spans",
    "Everything with a start and a duration, at every level.",
    (
        _key("span_id", "Row number, from 0, in the order of the table."),
        ColumnSpec("parent_id", _INT, "The span this one ran inside, or that launched it."),
        _key("run_id", "The run it was recorded in."),
        _key("level", "application, model, layer, operator, library, runtime or kernel.", _LABEL),
        _key("kind", "What it is within its level; see `Kind`.", _LABEL),
        _key("name", "Its name, without per-call numbers such as `op_id`.", _LABEL),
        _ns("start_ns", "Start, from the start of the trace.", nullable=False),
        _ns("duration_ns", "Duration; null where it was never closed."),
        ColumnSpec("process_id", _INT, "The operating system's process; for device work, the one that launched it."),
        ColumnSpec("thread_id", _INT, "The host thread; null for device work."),
        ColumnSpec("device_id", _INT, "The device, as the framework numbers it."),
        ColumnSpec("context_id", _INT, "The device context."),
        ColumnSpec("stream_id", _INT, "The stream (0 is an ordinary one)."),
        ColumnSpec("correlation_id", _INT, "Ties device work to its launch, within one process."),
        ColumnSpec("step", _INT, "Number of the step it ran in, or was launched in, as the profiler numbers steps."),
        ColumnSpec("phase", _LABEL, "forward, recompute, backward, optimizer or other."),
        ColumnSpec("layer_id", _INT, "The layer span the work belongs to, by rules 4 to 6 of linking."),
        ColumnSpec("ambiguous", pa.bool_(), "Whether another span, overlapping the parent, may be the parent as well."),
        ColumnSpec("attribution", _LABEL, "For device work: layer, model_only, graph_replay or an orphan's reason."),
    ),
    ("start_ns", "level", "duration_ns", "run_id", "process_id", "thread_id", "device_id", "stream_id", "name"),
)

_LAYERS = TableSpec(
    "layers",
    "One row a call of a module, a named range or (where these are the layers) an outermost operator.",
    (
        _SPAN_ID,
        ColumnSpec(
            "layer_index", _INT, "The layer it is a call of, in order of first own operator; null: no own work."
        ),
        _key("layer_name", "Name of the layer, one for every call: `Linear_3`.", _LABEL),
        _key("layer_type", "What kind of layer: `Linear`.", _LABEL),
        ColumnSpec("path", _LABEL, "Names from the outermost enclosing layer down to this one, joined by dots."),
        _key("source", "module, range or operator.", _LABEL),
        _key("is_container", "Whether other layers ran inside it.", pa.bool_()),
        ColumnSpec("shapes", _TEXT, "Input shapes of the first own operator, as JSON."),
        ColumnSpec("dtypes", _TEXT, "Input types of the first own operator, as JSON."),
        _bytes("allocated_bytes", "Memory allocated in this call outside its children; null: not recorded."),
        ColumnSpec("self_host_ns", _INT, "Host time of the call less that of the layers inside it.", "ns"),
    ),
    ("span_id",),
)

_OPERATORS = TableSpec(
    "operators",
    "One row an operator: what the framework recorded about the call.",
    (
        _SPAN_ID,
        ColumnSpec("sequence_number", _INT, "Ties a backward operator to its forward one."),
        ColumnSpec("forward_id", _INT, "For a backward operator, the span of its forward twin."),
        ColumnSpec("external_id", _INT, "The framework's own number of the call."),
        ColumnSpec("input_shapes", _LABEL, "Shapes of the inputs, as JSON."),
        ColumnSpec("input_dtypes", _LABEL, "Element types of the inputs, as JSON."),
        ColumnSpec("input_strides", _LABEL, "Strides of the inputs in elements, as JSON."),
        ColumnSpec("concrete_inputs", _LABEL, "The texts of inputs that are no tensors, as JSON."),
        ColumnSpec(
            "source_lines",
            _LABEL,
            "The user's lines of Python that called it, innermost first: `file:line function`, joined by `; `;"
            " of a backward operator those of its forward twin.",
        ),
    ),
    ("span_id",),
)

_RANGES = TableSpec(
    "ranges",
    "One row a named range: NVTX or a profiler annotation, as the user wrote it.",
    (
        _SPAN_ID,
        ColumnSpec("range_id", _INT, "The source's own number of the range (its row in NVTX_EVENTS); null: none."),
        ColumnSpec("text", _TEXT, "The whole name as recorded, per-call numbers included."),
        ColumnSpec("domain", _LABEL, "NVTX domain; null for the default one."),
        ColumnSpec("style", _LABEL, "PushPop, StartEnd or Annotation."),
        ColumnSpec("end_thread_id", _INT, "Thread that closed it, where another one did."),
    ),
    ("span_id",),
)

_KERNELS = TableSpec(
    "kernels",
    "One row a kernel: how it was launched.",
    (
        _SPAN_ID,
        *(
            ColumnSpec(f"{what}_{axis}", _INT, f"{what.capitalize()} size along {axis}.")
            for what in ("grid", "block")
            for axis in "xyz"
        ),
        ColumnSpec("registers_per_thread", _INT, "Registers each thread used."),
        _bytes("static_shared_bytes", "Shared memory fixed at compile time, per block."),
        _bytes("dynamic_shared_bytes", "Shared memory asked for at launch, per block."),
        _bytes("shared_bytes", "Shared memory of a block, static and dynamic together."),
        ColumnSpec("graph_id", _INT, "The graph that held it, for a replayed kernel."),
        ColumnSpec("graph_node_id", _INT, "The graph's node, for a replayed kernel."),
        ColumnSpec("captured_in_id", _INT, "For a replayed kernel, the span its node was captured in."),
    ),
    ("span_id",),
)

_COPIES = TableSpec(
    "copies",
    "One row a memcpy or memset.",
    (
        _SPAN_ID,
        _bytes("bytes", "Bytes copied or filled."),
        ColumnSpec("copy_kind", _LABEL, "Host-to-Device, Device-to-Host, Device-to-Device, ...; null for a memset."),
        ColumnSpec("source_kind", _LABEL, "Memory read from: Pageable, Pinned, Device, Array, Managed, ..."),
        ColumnSpec("destination_kind", _LABEL, "Memory written to."),
        ColumnSpec("virtual_address", _INT, "Where the block begins, of a migration of unified memory."),
    ),
    ("span_id",),
)

_COLLECTIVES = TableSpec(
    "collectives",
    "One row a kernel, call or range of communication for which the source says what was sent among whom.",
    (
        _SPAN_ID,
        ColumnSpec("operation", _LABEL, "all_reduce, all_gather, ...; else as the source calls it."),
        ColumnSpec("group_name", _LABEL, "The process group (communicator), as the source names it."),
        ColumnSpec("group_ranks", _LABEL, "Its ranks as the source lists them, as JSON; long lists may be cut short."),
        ColumnSpec("group_size", _INT, "How many ranks it has."),
        _bytes("input_bytes", "What this rank hands over: of several tensors, all of them."),
        _bytes("output_bytes", "What this rank receives."),
        ColumnSpec("input_split", _LABEL, "Parts of the input by rank of the group, as a JSON list of bytes."),
        ColumnSpec("output_split", _LABEL, "Parts of the output likewise."),
        ColumnSpec("peer_rank", _INT, "Of a send or receive: the other rank, by its number in the job."),
    ),
    ("span_id",),
)

_MESSAGES = TableSpec(
    "messages",
    "One row a call of message passing (MPI): between whom, and how large, as far as the source says.",
    (
        _SPAN_ID,
        ColumnSpec("rank", _INT, "Rank of the thread that called."),
        ColumnSpec("peer_rank", _INT, "Rank sent to or received from."),
        ColumnSpec("root_rank", _INT, "Of a collective with a root: its rank."),
        ColumnSpec("tag", _INT, "Tag of the message."),
        _bytes("bytes", "Of a message between two: its size."),
        _bytes("sent_bytes", "Of a collective: what this rank sends."),
        _bytes("received_bytes", "Of a collective: what this rank receives."),
    ),
    ("span_id",),
)

_PAGE_FAULTS = TableSpec(
    "page_faults",
    "One row a fault, or group of faults of a device, on pages of unified memory.",
    (
        _key("run_id", "The run it was recorded in."),
        _ns("time_ns", "When, from the start of the trace.", nullable=False),
        _ns("duration_ns", "How long a device took for it; null: not recorded."),
        ColumnSpec("process_id", _INT, "The operating system's process."),
        ColumnSpec("device_id", _INT, "The device that missed the page; null: the host did."),
        ColumnSpec("address", _INT, "The page's address."),
        ColumnSpec("count", _INT, "How many faults.", nullable=False),
        ColumnSpec("instruction", _TEXT, "Of a fault of the host: what the source says of the instruction."),
    ),
    ("run_id", "time_ns", "process_id", "device_id", "address", "count", "duration_ns", "instruction"),
)

_ATTRIBUTIONS = TableSpec(
    "attributions",
    "One row a device activity, or operator of the host, and layer that it belongs to otherwise than by its launch.",
    (
        _key("span_id", "The device activity or operator."),
        _key("layer_id", "A call of a layer that it belongs to, in any run; `spans.layer_id` has the weightiest."),
        ColumnSpec(
            "weight",
            pa.float64(),
            "The part of its time that is the layer's; of a span they add up to 1.",
            nullable=False,
        ),
        _key("basis", "How that is known; see `AttributionBasis`.", _LABEL),
    ),
    ("span_id", "layer_id"),
)

_COMPILED_KERNELS = TableSpec(
    "compiled_kernels",
    "One row a call, in the code of a compiled graph, for which the compiler says what it was generated from.",
    (
        _SPAN_ID,
        _key("region", "The compiled graph, by the hash that its calls have in the trace.", _LABEL),
        ColumnSpec("region_call", _INT, "Which call of that graph in the run it is in; from 0.", nullable=False),
        _key("direction", "forward or backward.", _LABEL),
        _key("kernel_name", "The function's name in the generated code.", _LABEL),
        ColumnSpec("operators", _LABEL, "The operators that it stands for, in the order of its nodes."),
        ColumnSpec("sources", _LABEL, "Lines of the model's source that these came from, as file:line."),
    ),
    ("span_id",),
)

_METRICS = TableSpec(
    "metrics",
    "One row a span and metric: counters and modelled numbers.",
    (
        _SPAN_ID,
        _key("metric", "Name of the metric: `flop_count_sp`, `dram_read_bytes`, ...", _LABEL),
        ColumnSpec("value", pa.float64(), "Its value.", nullable=False),
        _key("unit", "Its unit: flop, byte, 1, ...", _LABEL),
        _key("source", "measured by what, modelled, or derived.", _LABEL),
    ),
    ("span_id", "metric", "source"),
)

_DEVICES = TableSpec(
    "devices",
    "One row a device of a run.",
    (
        _key("run_id", "The run that used it."),
        _key("device_id", "Its number, as in `spans`."),
        ColumnSpec("process_id", _INT, "The process for which this number holds; null: for all."),
        ColumnSpec("name", _TEXT, "What it is: `NVIDIA H100 80GB HBM3`."),
        ColumnSpec("multiprocessor_count", _INT, "Streaming multiprocessors or compute units."),
        ColumnSpec("compute_capability", _TEXT, "As `9.0`."),
        ColumnSpec("clock_hz", _INT, "Highest core clock.", "Hz"),
        _bytes("memory_bytes", "Size of its memory."),
        ColumnSpec("dram_byte_per_s", pa.float64(), "Peak memory bandwidth.", "byte/s"),
        ColumnSpec("fp32_flop_per_s", pa.float64(), "Peak FP32 rate at `clock_hz`.", "flop/s"),
        ColumnSpec("peak_source", _TEXT, "Where the two peaks come from."),
    ),
    ("run_id", "device_id", "process_id"),
)

_PEAKS = TableSpec(
    "peaks",
    "One row a device and quantity: the most it can do, and who says so.",
    (
        _key("run_id", "The run that used the device."),
        _key("device_id", "The device's number, as in `devices`."),
        ColumnSpec("process_id", _INT, "The process for which this number holds; null: for all."),
        _key("quantity", "fp64, fp32, fp16, tf32, fp16_tensor, ..., int8_tensor, dram, pcie or nvlink.", _LABEL),
        ColumnSpec("value", pa.float64(), "The peak rate.", nullable=False),
        _key("unit", "flop/s, op/s or byte/s.", _LABEL),
        _key("source", "Who says so: the user, the profiler's file, a data sheet.", _TEXT),
        ColumnSpec("detail", _TEXT, "Dense, accumulator, clock: what the rate holds for."),
    ),
    ("run_id", "device_id", "process_id", "quantity"),
)

_COUNTERS = TableSpec(
    "counters",
    "Time series: memory in use, power, GPU metrics.",
    (
        _key("run_id", "The run they were sampled in."),
        _ns("time_ns", "When, from the start of the trace.", nullable=False),
        _key("counter", "Name: `allocated_bytes`, `reserved_bytes`, ...", _LABEL),
        ColumnSpec("device_id", _INT, "The device; null for the host."),
        ColumnSpec("value", pa.float64(), "Its value then.", nullable=False),
        _key("unit", "Its unit.", _LABEL),
    ),
    ("run_id", "counter", "device_id", "time_ns", "value"),
)

_ALLOCATIONS = TableSpec(
    "allocations",
    "One row a block of memory that an allocator gave out or took back.",
    (
        _key("run_id", "The run it was recorded in."),
        _key("sequence", "Its number among those of the run, in order of time; at one time as the source has them."),
        _ns("time_ns", "When, from the start of the trace.", nullable=False),
        ColumnSpec("process_id", _INT, "The operating system's process; addresses are its own."),
        ColumnSpec("device_id", _INT, "The device; null for memory of the host."),
        ColumnSpec("bytes", _INT, "Size of the block; negative: taken back.", "byte", nullable=False),
        ColumnSpec("address", _INT, "Where the block is, which ties what is taken back to what was given out."),
        _bytes("allocated_bytes", "In use on the device afterwards, as the source counts it."),
        _bytes("reserved_bytes", "Held by the framework's allocator afterwards, in use or not."),
        ColumnSpec("owner_id", _INT, "The innermost span that ran on the thread then."),
        ColumnSpec("category", _LABEL, "What it is used for, where the source itself says; see `MemoryKind`."),
        ColumnSpec("source_lines", _LABEL, "Lines of Python that allocated it, where the source itself says."),
    ),
    ("run_id", "sequence"),
)

_STEP_TIMES = TableSpec(
    "step_times",
    "One row a step that was timed around the model's call, without a profiler's span.",
    (
        _key("run_id", "The run it was timed in."),
        _key("step", "Number of the step, from 0."),
        _ns("duration_ns", "Its duration.", nullable=False),
    ),
    ("run_id", "step"),
)

_ACCURACIES = TableSpec(
    "accuracies",
    "One row a measure of the quality of a run's results; of a training curve one a point of it.",
    (
        _key("run_id", "The run whose results they are."),
        _key("metric", "What was measured, as its description calls it: `top1`, `loss`, `BLEU`.", _LABEL),
        ColumnSpec("dataset", _LABEL, "What it was measured on, where the description says."),
        _ns("time_ns", "Of a training curve: time since training began; null: what the run ended with."),
        ColumnSpec("value", pa.float64(), "Its value.", nullable=False),
        ColumnSpec("unit", _LABEL, "Its unit, where the description says: share, percent."),
        ColumnSpec("sample_count", _INT, "Samples it was measured on, where the description says."),
        ColumnSpec("higher_is_better", pa.bool_(), "Whether more is better; null: nobody says."),
    ),
    ("run_id", "metric", "dataset", "time_ns", "value"),
)

_TENSORS = TableSpec(
    "tensors",
    "One row a tensor that a run recorded a checksum of: what a step was given, and what came out.",
    (
        _key("run_id", "The run that recorded it."),
        _key("kind", "input, weights (all parameters one after the other) or output.", _LABEL),
        _key("name", "Its name: `output.logits`.", _TEXT),
        ColumnSpec("step", _INT, "Steps that had been run before the one that it is of."),
        ColumnSpec("shape", _TEXT, "Its shape, as JSON."),
        ColumnSpec("dtype", _LABEL, "Type of its elements."),
        ColumnSpec("value_count", _INT, "How many elements it has."),
        ColumnSpec("sha256", _TEXT, "Digest of its bytes, as they lie in memory in row order."),
        ColumnSpec("l2_norm", pa.float64(), "Root of the sum of squares of its finite elements."),
        ColumnSpec("max_abs", pa.float64(), "Largest magnitude of its finite elements."),
        ColumnSpec("non_finite_count", _INT, "Elements that are infinite or no number."),
        ColumnSpec("sampled_values", _TEXT, "Some of its elements, evenly spread, as JSON; null in it: not finite."),
        ColumnSpec("top1", _TEXT, "Where the largest element of each of its first rows is, as JSON."),
    ),
    ("run_id", "kind", "name", "step"),
)

_OUTPUT_DISTANCES = TableSpec(
    "output_distances",
    "One row a tensor and reference that somebody compared it with, element by element.",
    (
        _key("run_id", "The run whose tensor it is."),
        _key("name", "The tensor, as in `tensors`.", _TEXT),
        _key("reference", "What it was compared with, as the description calls it: a run, a framework.", _TEXT),
        ColumnSpec("reference_sha256", _TEXT, "Digest of the reference's bytes, as in `tensors`."),
        ColumnSpec("max_abs_difference", pa.float64(), "Largest difference of two elements."),
        ColumnSpec("relative_l2", pa.float64(), "L2 norm of the difference over that of the reference."),
        ColumnSpec("cosine", pa.float64(), "Cosine of the angle between the two, as vectors."),
        ColumnSpec("top1_agreement", pa.float64(), "Share of rows whose largest element is the same one, in 0..1."),
    ),
    ("run_id", "name", "reference"),
)

_LEDGER = TableSpec(
    "ledger",
    "What could not be read, linked or attributed, and what to do about it.",
    (
        ColumnSpec("run_id", _INT, "The run it concerns; null: the whole trace."),
        _key("kind", "A fixed word for the finding.", _TEXT),
        _key("severity", "info, warning or error.", _TEXT),
        ColumnSpec("count", _INT, "How many spans or events.", nullable=False),
        _ns("duration_ns", "Device time concerned, where that can be said."),
        _key("detail", "What was found, in one sentence.", _TEXT),
        _key("advice", "What the reader can do about it; empty: nothing is needed.", _TEXT),
    ),
    ("run_id", "kind", "detail"),
)

TABLES: Mapping[str, TableSpec] = {
    t.name: t
    for t in (
        _RUNS,
        _SPANS,
        _LAYERS,
        _OPERATORS,
        _RANGES,
        _KERNELS,
        _COPIES,
        _COLLECTIVES,
        _MESSAGES,
        _PAGE_FAULTS,
        _ATTRIBUTIONS,
        _COMPILED_KERNELS,
        _METRICS,
        _DEVICES,
        _PEAKS,
        _COUNTERS,
        _ALLOCATIONS,
        _STEP_TIMES,
        _ACCURACIES,
        _TENSORS,
        _OUTPUT_DISTANCES,
        _LEDGER,
    )
}
"""Every table of a trace, by name."""

REFERENCES: Mapping[str, tuple[str, ...]] = {
    "spans": ("parent_id", "layer_id"),
    "operators": ("forward_id",),
    "kernels": ("captured_in_id",),
    "attributions": ("layer_id",),
    "allocations": ("owner_id",),
}
"""Columns that hold a span's id, by table, besides `span_id`."""

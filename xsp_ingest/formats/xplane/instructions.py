"""Instructions of compiled programs: their work, their lines of source, and which of them a replayed graph ran."""

from __future__ import annotations

import json
import re
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
from google.protobuf.message import DecodeError

from xsp_ingest.formats.xplane.plane import message, text_of
from xsp_ingest.formats.xplane.program_graph import DAMAGE, Program
from xsp_ingest.formats.xplane.program_work import InstructionWork, precision_of, work_of
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from xsp_ingest.formats.xplane.program_graph import Computation, Instruction

__all__ = ["INSTRUCTION_COLUMNS", "WORK", "SourceLines", "program_instructions", "program_number", "with_instructions"]

# The instructions of compiled programs as a table: the work of those that ran, and the lines of source they are of.

_MAX_LINES = 4
_MAX_DEPTH = 256
_HOME = re.compile(r"^(?:/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:[\\/]Users[\\/][^\\/]+)[\\/]")
_LIBRARY = re.compile(r"^.*[\\/](?:site|dist)-packages[\\/]")


def without_home(path: str) -> str:
    """The path without the home directory or the environment that it lies in, whose names tell of people."""
    return _HOME.sub("", _LIBRARY.sub("", path))


class SourceLines:
    """Of one program: `of` an instruction's metadata, as `file:line function`, innermost first, joined by `; `."""

    def __init__(self, module: Any) -> None:  # noqa: ANN401 (a message of protobuf)
        self._raw = module.stack_frame_index
        self._texts: dict[int, str | None] = {}

    @cached_property
    def _index(self) -> Any:  # noqa: ANN401
        try:
            return message("HloStackFrames").FromString(self._raw)
        except DAMAGE:
            return message("HloStackFrames")()

    def of(self, metadata: Any) -> str | None:  # noqa: ANN401
        """None where the program does not say."""
        frame = metadata.stack_frame_id
        if frame not in self._texts:
            self._texts[frame] = "; ".join(self._lines(frame)) or None
        file = without_home(text_of(metadata.source_file))
        return self._texts[frame] or (f"{file}:{metadata.source_line}" if file and metadata.source_line > 0 else None)

    def _lines(self, number: int) -> list[str]:
        """The innermost lines outside libraries, or where all are in libraries the innermost of those."""
        frames = list(self._frames(number))
        own = [frame for frame in frames if not _LIBRARY.match(frame[0])]
        return [
            f"{without_home(file)}:{line} {function}".rstrip() for file, line, function in (own or frames)[:_MAX_LINES]
        ]

    def _frames(self, number: int) -> Iterator[tuple[str, int, str]]:
        """File, line and function from the frame of this number, counted from 1, outwards; 0 is none."""
        index = self._index
        for _ in range(_MAX_DEPTH):
            if not 0 < number <= len(index.frames):
                return
            frame = index.frames[number - 1]
            number = frame.parent
            if not 0 < frame.location <= len(index.locations):
                return
            location = index.locations[frame.location - 1]
            file, function = (
                text_of(names[at - 1]) if 0 < at <= len(names) else ""
                for names, at in ((index.file_names, location.file), (index.function_names, location.function))
            )
            if file:
                yield file, location.line, function


WORK = tuple(f"modelled_{field.name}" for field in fields(InstructionWork))
"""The columns of an instruction's work, in flop and bytes."""
_TEXTS = ("precision", "input_shapes", "input_dtypes", "source_lines")
INSTRUCTION_COLUMNS = (*WORK, *_TEXTS)
"""What a program tells of an instruction, but for its names and its opcode."""
_SCHEMA = {
    "hlo_module": pl.String(),
    "program_id": pl.Int64(),
    "hlo_op": pl.String(),
    "opcode": pl.String(),
    "framework_op": pl.String(),
    **dict.fromkeys(WORK, pl.Float64()),
    **dict.fromkeys(_TEXTS, pl.String()),
}
_PROGRAM = re.compile(r"\((\d{1,18})\)$")


def program_number(name: str) -> int | None:
    """The number in the name of a program: 24 of `jit_train_step(24)`."""
    match = _PROGRAM.search(name)
    return int(match[1]) if match else None


def program_instructions(protos: Mapping[str, bytes], ran: Collection[str]) -> tuple[pl.DataFrame, int, int]:
    """One row an instruction of a name that ran; then how many programs, and how many instructions, are damaged.

    `protos` holds serialised programs by names as `jit_train_step(24)`. Null: the program does not say.
    """
    names = {name.encode() for name in ran}
    rows: list[tuple[object, ...]] = []
    lost_programs = lost_instructions = 0
    for name, raw in protos.items():
        try:
            program = Program(raw)
        except DecodeError:
            lost_programs += 1
            continue
        lines = SourceLines(program.module)
        for computation, one in program.instructions():
            if one.name in names:
                described = _work_and_operands(program, computation, one)
                lost_instructions += described is None
                op_name = text_of(one.metadata.op_name) or None
                rows.append(
                    (
                        *(program.name, program_number(name), text_of(one.name), text_of(one.opcode), op_name),
                        *(described or (None,) * (len(WORK) + len(_TEXTS) - 1)),
                        lines.of(one.metadata),
                    )
                )
    frame = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    unique = frame.unique(["hlo_module", "program_id", "hlo_op"], keep="first", maintain_order=True)
    return unique, lost_programs, lost_instructions


def _work_and_operands(program: Program, computation: Computation, raw: Any) -> tuple[object, ...] | None:  # noqa: ANN401
    """Work and operands of an instruction; None where it is damaged."""
    try:
        one = computation[raw.id]
        work = (_amount(amount) for amount in astuple(work_of(program, computation, one)))
        return (*work, precision_of(program, computation, one), *_operands(computation, one))
    except DAMAGE:
        return None


def _amount(value: int | None) -> float | None:
    return None if value is None else float(value)


def _operands(computation: Computation, one: Instruction) -> tuple[str, str]:
    """Sizes and types of the arrays that it takes, as JSON."""
    arrays = [array for number in one.operand_ids for array in computation[number].result]
    return json.dumps([array.sizes for array in arrays]), json.dumps([array.element_type for array in arrays])


# Which instructions the kernels of a command buffer (a replayed graph) are of, by the order of the program's schedule.
#
# XLA names such work after the command buffer (`command_buffer_2`) or not at all. A kernel of its own is named after a
# fusion, but fusions alike share one kernel, so that its name tells a kind of fusions. What a launch replayed is a part
# of the schedule: where the kinds of its kernels stand in the program in one position only, each kernel is of the
# instruction there, and what a library ran between two of them is of the one call between these.

_LAUNCH = r"(?i)^(cuda|cu|hip)GraphLaunch"
_LAUNCHED = ("process_id", "correlation_id")
_UNIT = (*_LAUNCHED, "hlo_module", "program_id")
_NO_NAME = re.compile(r"[^A-Za-z0-9_]")
_FUSION, _LIBRARY_CALL = "fusion", "custom-call"


@dataclass(frozen=True, slots=True)
class _Instruction:
    name: str
    opcode: str
    kind: int  # of fusions that may share a kernel; -1: no fusion


@dataclass(frozen=True, slots=True)
class _Program:
    """Schedules of a program's computations, and the kind of fusions that a kernel's name stands for."""

    schedules: Sequence[Sequence[_Instruction]]
    kinds: Mapping[str, int]
    names: frozenset[str]


def with_instructions(
    work: pl.DataFrame, calls: pl.DataFrame, protos: Mapping[str, bytes]
) -> tuple[pl.DataFrame, list[Finding]]:
    """The work with `hlo_op` of what command buffers replayed, where `replayed` marks it; and what stays unknown.

    `calls` are the host's calls (process_id, correlation_id, event_name).
    """
    rows = work.with_columns(pl.lit(value=False).alias("replayed"))
    names = calls["event_name"].unique().drop_nulls()
    launching = names.filter(names.cast(pl.String).str.contains(_LAUNCH))
    if not protos or (launching.is_empty() and not (work["graph_node_id"] > 0).any()):
        return rows, []
    rows = rows.with_row_index("at")
    launches = calls.filter(pl.col("event_name").is_in(launching.implode())).select(_LAUNCHED).unique()
    kernels_named = _by_instruction(_replays(rows, launches), _programs(protos), rows.schema["at"])
    out = rows.join(kernels_named.select("at", "instruction"), on="at", how="left", maintain_order="left").with_columns(
        pl.coalesce("instruction", pl.col("hlo_op").cast(pl.String)).alias("hlo_op"),
        pl.col("instruction").is_not_null().alias("replayed"),
    )
    unknown = kernels_named.filter(pl.col("instruction").is_null())
    return out.drop("at", "instruction"), [
        Finding(LedgerKind.COMMAND_BUFFER_READ, count=kernels_named.height - unknown.height),
        Finding(LedgerKind.COMMAND_BUFFER_UNREAD, count=unknown.height, duration_ns=int(unknown["duration_ns"].sum())),
    ]


def _by_instruction(
    replays: pl.DataFrame, programs: Mapping[tuple[str, int | None], _Program], index: pl.DataType
) -> pl.DataFrame:
    """at, duration_ns and instruction (null: unknown) of the kernels whose own name of it is none of the program's."""
    only = next(iter(programs.values())) if len(programs) == 1 else None
    cache: dict[tuple[int, tuple[str, ...]], Sequence[str | None]] = {}
    parts = [pl.DataFrame(schema={"at": index, "duration_ns": pl.Int64, "instruction": pl.String})]
    for (_, _, module, number), kernels in replays.group_by(_UNIT, maintain_order=True):
        program = programs.get((str(module), number if isinstance(number, int) else None)) or only
        is_named = pl.col("hlo_op").is_in(program.names if program else []).fill_null(value=False)
        left = kernels.filter(~is_named)
        instructions: Sequence[str | None] = [None] * left.height
        if program and _is_one_chain(left):
            key = id(program), tuple(left["name_of_work"].to_list())
            if key not in cache:
                cache[key] = _instructions(program, key[1])
            instructions = cache[key]
        instruction = pl.Series("instruction", instructions, dtype=pl.String)
        parts.append(left.select("at", "duration_ns").with_columns(instruction))
    return pl.concat(parts)


def _replays(rows: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """The kernels that one of the launches replayed, in order of start."""
    launched = rows.select("at", *_LAUNCHED).join(launches, on=list(_LAUNCHED), how="semi")["at"]
    is_replay = (pl.col("graph_node_id") > 0).fill_null(value=False) | pl.col("at").is_in(launched.implode())
    texts = pl.col("hlo_op", "hlo_module", "name_of_work").cast(pl.String)
    return rows.filter(is_replay, pl.col("kind") == "kernel").with_columns(texts).sort("start_ns", "at")


def _is_one_chain(kernels: pl.DataFrame) -> bool:
    """Whether none began before the one before had ended, so that their order is the schedule's."""
    end = pl.col("start_ns") + pl.col("duration_ns")
    return not kernels.select((pl.col("start_ns") < end.cum_max().shift(1)).any()).item()


def _instructions(program: _Program, kernels: Sequence[str]) -> Sequence[str | None]:
    """The instruction of each kernel, None where that is not certain."""
    kinds = [program.kinds.get(kernel, -1) for kernel in kernels]
    fusions_at = [index for index, kind in enumerate(kinds) if kind >= 0]
    stretches = list(_stretches(program, [kinds[index] for index in fusions_at])) if fusions_at else []
    out: list[str | None] = [None] * len(kernels)
    if len(stretches) != 1:
        return out
    schedule, positions = stretches[0]
    for index, position in zip(fusions_at, positions, strict=True):
        out[index] = schedule[position].name
    for (first, begin), (last, end) in pairwise(zip(fusions_at, positions, strict=True)):
        between = [each.name for each in schedule[begin + 1 : end] if each.opcode == _LIBRARY_CALL]
        if len(between) == 1:
            out[first + 1 : last] = between * (last - first - 1)
    return out


def _stretches(program: _Program, kinds: Sequence[int]) -> Iterator[tuple[Sequence[_Instruction], Sequence[int]]]:
    """Each schedule, with positions in it, whose fusions from the first of these on are of these kinds."""
    for schedule in program.schedules:
        fusions = [position for position, each in enumerate(schedule) if each.kind >= 0]
        present = [schedule[position].kind for position in fusions]
        for first in range(len(present) - len(kinds) + 1):
            if present[first : first + len(kinds)] == list(kinds):
                yield schedule, fusions[first : first + len(kinds)]


def _programs(protos: Mapping[str, bytes]) -> dict[tuple[str, int | None], _Program]:
    out = {}
    for name, raw in protos.items():
        try:
            module = message("HloProto").FromString(raw).hlo_module
        except DecodeError:
            continue  # counted where instructions are named
        out[module.name.decode(errors="replace"), program_number(name)] = _program(module)
    return out


def _program(module: Any) -> _Program:  # noqa: ANN401 (a message of protobuf)
    computations = {computation.id: computation for computation in module.computations}
    kind_ids: dict[object, int] = {}
    kinds: dict[str, int] = {}
    schedules = []
    for entry in module.schedule.sequences:
        if entry.key not in computations:
            continue
        by_id = {one.id: one for one in computations[entry.key].instructions}
        schedule = []
        for one in (by_id[number] for number in entry.value.instruction_ids if number in by_id):
            name, opcode = one.name.decode(errors="replace"), one.opcode.decode(errors="replace")
            content = _content(one, computations)
            kind = kind_ids.setdefault(content, len(kind_ids)) if opcode == _FUSION else -1
            if kind >= 0:
                kernel = _NO_NAME.sub("_", name)
                kinds[kernel] = kind if kinds.get(kernel, kind) == kind else -1
            schedule.append(_Instruction(name, opcode, kind))
        schedules.append(schedule)
    return _Program(schedules, kinds, frozenset(each.name for schedule in schedules for each in schedule))


def _content(fusion: Any, computations: Mapping[int, Any]) -> object:  # noqa: ANN401
    """What two fusions have in common that may share a kernel: opcodes and shapes of what they compute."""
    called = (computations[number].instructions for number in fusion.called_computation_ids if number in computations)
    return tuple((one.opcode, one.shape) for instructions in called for one in instructions)

"""The instructions of compiled programs as a table: the work of those that ran, and the lines of source they are of."""

from __future__ import annotations

import json
import re
from dataclasses import astuple, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl
from google.protobuf.message import DecodeError

from xsp_ingest.formats.xplane.plane import message
from xsp_ingest.formats.xplane.programs.graph import DAMAGE, Program, text_in
from xsp_ingest.formats.xplane.programs.work import InstructionWork, precision_of, work_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from xsp_ingest.formats.xplane.programs.graph import Computation, Instruction

__all__ = ["INSTRUCTION_COLUMNS", "WORK", "SourceLines", "program_instructions", "program_number"]

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
        file = without_home(text_in(metadata.source_file))
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
                text_in(names[at - 1]) if 0 < at <= len(names) else ""
                for names, at in ((index.file_names, location.file), (index.function_names, location.function))
            )
            if file:
                yield file, location.line, function


# The instructions of compiled programs as a table, with the work of those that ran.

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
                op_name = text_in(one.metadata.op_name) or None
                rows.append(
                    (
                        *(program.name, program_number(name), text_in(one.name), text_in(one.opcode), op_name),
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

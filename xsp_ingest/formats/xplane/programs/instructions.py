"""The instructions of compiled programs as a table, with the work of those that ran."""

from __future__ import annotations

import json
import re
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any

import polars as pl
from google.protobuf.message import DecodeError

from xsp_ingest.formats.xplane.programs.graph import DAMAGE, Program, text_in
from xsp_ingest.formats.xplane.programs.source_lines import SourceLines
from xsp_ingest.formats.xplane.programs.work import InstructionWork, precision_of, work_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from xsp_ingest.formats.xplane.programs.graph import Computation, Instruction

__all__ = ["INSTRUCTION_COLUMNS", "WORK", "program_instructions", "program_number"]

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

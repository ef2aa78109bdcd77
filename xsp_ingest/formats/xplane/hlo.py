"""Which framework operation an instruction of a compiled program stands for, as the program's metadata says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl
from google.protobuf.message import DecodeError

from xsp_ingest.formats.xplane.messages import message

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["framework_operations", "program_number"]

_PROGRAM = re.compile(r"\((\d{1,18})\)$")
_SCHEMA = {
    "hlo_module": pl.String(),
    "program_id": pl.Int64(),
    "hlo_op": pl.String(),
    "opcode": pl.String(),
    "framework_op": pl.String(),
}


def program_number(name: str) -> int | None:
    """The number in the name of a program: 24 of `jit_train_step(24)`."""
    match = _PROGRAM.search(name)
    return int(match[1]) if match else None


def framework_operations(protos: Mapping[str, bytes]) -> tuple[pl.DataFrame, int]:
    """One row an instruction: module, program, its opcode and the framework's name; and how many programs are damaged.

    `protos` holds serialised programs by names as `jit_train_step(24)`.
    """
    rows: list[tuple[str, int | None, str, str, str | None]] = []
    lost = 0
    for name, raw in protos.items():
        program = program_number(name)
        try:
            module = message("HloProto").FromString(raw).hlo_module
        except DecodeError:
            lost += 1
            continue
        for computation in module.computations:
            for one in computation.instructions:
                op_name = one.metadata.op_name.decode(errors="replace")
                module_name, hlo_op, opcode = (
                    text.decode(errors="replace") for text in (module.name, one.name, one.opcode)
                )
                rows.append((module_name, program, hlo_op, opcode, op_name or None))
    frame = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    return frame.unique(["hlo_module", "program_id", "hlo_op"], keep="first", maintain_order=True), lost

"""Compiled programs that a profile holds: what each instruction takes, reads, writes and computes."""

from xsp_ingest.formats.xplane.programs.instructions import (
    INSTRUCTION_COLUMNS,
    WORK,
    program_instructions,
    program_number,
)

__all__ = ["INSTRUCTION_COLUMNS", "WORK", "program_instructions", "program_number"]

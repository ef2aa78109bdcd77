"""Which calls of a jitted function are steps."""

from __future__ import annotations

import polars as pl

from xsp_ingest.formats.xplane.host import Role, step_rows

_HOST = {
    "process_id": pl.Int64(), "thread_id": pl.Int64(), "start_ns": pl.Int64(), "duration_ns": pl.Int64(),
    "event_name": pl.String(), "role": pl.String(), "correlation_id": pl.Int64(), "group_id": pl.Int64(),
    "step_num": pl.Int64(),
}  # fmt: skip
_WORK = {
    "process_id": pl.Int64(), "correlation_id": pl.Int64(), "hlo_module": pl.String(), "program_id": pl.Int64(),
    "start_ns": pl.Int64(), "duration_ns": pl.Int64(),
}  # fmt: skip


def _starts(programs: list[tuple[int, int]]) -> list[int]:
    """Starts of the steps found, where a function is called every 100 ns; a call: program, device time."""
    host: list[tuple[object, ...]] = []
    work: list[tuple[object, ...]] = []
    for number, (program, time) in enumerate(programs):
        start = 100 * number
        host.append((1, 1, start, 50, "PjitFunction(dot)", str(Role.RANGE), None, None, None))
        host.append((1, 9, start + 60, 5, "cuLaunchKernel", str(Role.CALL), number, None, None))  # another thread
        work.append((1, number, "jit_dot", program, start + 70, time))
    frame = pl.DataFrame(host, schema=_HOST, orient="row").with_columns(pl.col("role").cast(pl.String))
    steps, _ = step_rows(frame, [], pl.DataFrame(work, schema=_WORK, orient="row"), "jit_dot", [])
    return steps["start_ns"].to_list()


def test_calls_of_other_shapes_are_no_steps() -> None:
    assert _starts([(7, 10), (7, 10), (8, 500), (8, 500), (9, 30)]) == [200, 300]


def test_a_program_that_does_not_repeat_makes_no_steps() -> None:
    assert _starts([(7, 10), (8, 20), (9, 30)]) == []


def test_calls_of_one_program_are_all_steps() -> None:
    assert _starts([(7, 10), (7, 10), (7, 10)]) == [0, 100, 200]

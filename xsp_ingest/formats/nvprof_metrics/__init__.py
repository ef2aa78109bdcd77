"""Reads the tables of metrics that `nvprof --metrics` prints, as CSV or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.counters.formula import Measured, canonical
from xsp_ingest.files.content import decode_head, open_text
from xsp_ingest.formats.nvprof_metrics.rows import collect, is_header, is_printed
from xsp_ingest.ingester import Ingester, Match
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.formats.nvprof_metrics.rows import Rows
    from xsp_ingest.ingester import Options

__all__ = ["NVPROF_METRICS"]

_AGAIN = "Copy or print it again: nvprof --metrics all --csv --log-file FILE PROGRAM"


class NvprofMetrics(Ingester):
    """The ingester of nvprof's metrics as CSV."""

    name: str = "nvprof_metrics"
    title: str = (
        "nvprof `--metrics`, printed or `--csv`: averages per kernel name, or single launches (--print-gpu-trace);"
        " seen: CUDA 8 (CSV), a V100's (printed)"
    )

    def sniff(self, probe: Probe) -> Match:
        """Whether the header of a table of metrics stands in the head."""
        if probe.text.startswith((b"SQLite", b"{", b"[")):
            return Match.NONE
        return Match.exact_if(
            any(
                ('"Kernel"' in line and is_header(line)) or is_printed(line)
                for line in decode_head(probe.text).split("\n")
            )
        )

    def read(self, path: Path, options: Options) -> RawTrace:  # noqa: ARG002 (no option concerns it)
        """The file's kernels and metrics; XspError where it holds none or is cut off."""
        try:
            with open_text(path) as file:
                rows = collect(file)
        except (EOFError, OSError) as error:
            raise XspError("the file is cut off or damaged", path=path, advice=_AGAIN) from error
        if rows.is_cut_off:
            raise XspError("the file is cut off: its last row is not complete", path=path, advice=_AGAIN)
        if not rows.kernels:
            raise XspError("the file holds no kernel's metrics", path=path, advice=_AGAIN)
        return _shape(rows)


def _shape(rows: Rows) -> RawTrace:
    from xsp_ingest.formats.nvprof_metrics.rows import NVPROF

    kernels = pl.DataFrame(rows.kernels).with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("row"))
    spans = kernels.with_columns(
        pl.lit("kernel").alias("level"), pl.lit("kernel").alias("kind"), pl.lit(0, pl.Int64).alias("start_ns")
    )
    devices = {"device_id": list(rows.devices), "name": list(rows.devices.values())}
    tables = {
        "spans": frame_of("spans", spans),
        "kernels": frame_of("kernels", kernels.select("row")),
        "metrics": frame_of("metrics", canonical(_measured_counters(rows, kernels), NVPROF)),
        "devices": frame_of("devices", devices) if rows.devices else frame_of("devices"),
    }
    tables |= {name: frame_of(name) for name in RAW_TABLES if name not in tables}
    return RawTrace(tables, RunFacts(profiler="nvprof"), _findings(rows))


def _measured_counters(rows: Rows, kernels: pl.DataFrame) -> Measured:
    columns = {"row": pl.Int64, "metric": pl.String, "value": pl.Float64, "unit": pl.String}
    values = pl.DataFrame(rows.values, schema=columns, orient="row")
    units = dict(values.select("metric", "unit").unique("metric", keep="first", maintain_order=True).iter_rows())
    wide = values.unique(["row", "metric"], keep="first", maintain_order=True)
    wide = kernels.select("row").join(
        wide.pivot("metric", index="row", values="value"), on="row", how="left", maintain_order="left"
    )
    if kernels["invocations"].is_not_null().any():
        wide = wide.with_columns(kernels["invocations"].cast(pl.Float64))
    return Measured(wide, {**units, "invocations": "1"}, "nvprof")


def _findings(rows: Rows) -> tuple[Finding, ...]:
    averaged = sum(1 for kernel in rows.kernels if kernel.invocations is not None)
    return (
        Finding(
            LedgerKind.NO_TIMESTAMPS,
            "kernels have neither time stamps nor durations; all were put at time 0",
            len(rows.kernels),
            advice="Join it to a timeline with `xsp merge`",
        ),
        Finding(LedgerKind.AVERAGED_INVOCATIONS, count=averaged),
        Finding(LedgerKind.TEXT_COUNTER_LEFT_OUT, count=rows.unreadable),
    )


NVPROF_METRICS = NvprofMetrics()

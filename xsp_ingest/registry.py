"""Every format that XSP reads, in one place."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from xsp_ingest.formats.chrome_trace import CHROME_TRACE
from xsp_ingest.formats.compiled_code.log import TORCH_TRACE_LOG
from xsp_ingest.formats.compiled_code.record import COMPILED_CODE
from xsp_ingest.formats.cupti_dump import CUPTI_DUMP
from xsp_ingest.formats.execution_trace import EXECUTION_TRACE
from xsp_ingest.formats.fai_pep import FAI_PEP
from xsp_ingest.formats.jaeger import JAEGER
from xsp_ingest.formats.jaeger.otlp import OTLP
from xsp_ingest.formats.loadgen import LOADGEN
from xsp_ingest.formats.memory_snapshot import MEMORY_SNAPSHOT
from xsp_ingest.formats.mxnet import MXNET
from xsp_ingest.formats.ncu.csv import NCU_CSV
from xsp_ingest.formats.ncu.report import NCU_REPORT
from xsp_ingest.formats.nsys.export import NSYS_EXPORT
from xsp_ingest.formats.nsys.report import NSYS_REPORT
from xsp_ingest.formats.nsys.sqlite import NSYS_SQLITE
from xsp_ingest.formats.nsys.stats_csv import NSYS_STATS_CSV
from xsp_ingest.formats.nvml_samples import NVML_SAMPLES
from xsp_ingest.formats.nvprof import NVPROF
from xsp_ingest.formats.nvprof_metrics import NVPROF_METRICS
from xsp_ingest.formats.onnxruntime import ONNXRUNTIME
from xsp_ingest.formats.rocprofv3 import ROCPROFV3
from xsp_ingest.formats.system_samples import SYSTEM_SAMPLES
from xsp_ingest.formats.tensorrt import TENSORRT
from xsp_ingest.formats.tf_timeline import TF_TIMELINE
from xsp_ingest.formats.torch_profiler.ingester import TORCH_PROFILER
from xsp_ingest.formats.xplane import XPLANE
from xsp_ingest.formats.xplane.trace_json import XLA_TRACE_JSON
from xsp_ingest.ingester import Ingester
from xsp_model import XspError

__all__ = ["ENTRY_POINTS", "INGESTERS", "all_ingesters"]

INGESTERS: tuple[Ingester, ...] = (
    TORCH_PROFILER,
    NSYS_SQLITE,
    NSYS_EXPORT,
    NSYS_REPORT,
    NSYS_STATS_CSV,
    JAEGER,
    OTLP,
    NCU_CSV,
    NCU_REPORT,
    NVPROF_METRICS,
    LOADGEN,
    CUPTI_DUMP,
    XPLANE,
    XLA_TRACE_JSON,
    TF_TIMELINE,
    ROCPROFV3,
    EXECUTION_TRACE,
    COMPILED_CODE,
    TORCH_TRACE_LOG,
    MEMORY_SNAPSHOT,
    NVML_SAMPLES,
    SYSTEM_SAMPLES,
    ONNXRUNTIME,
    TENSORRT,
    FAI_PEP,
    MXNET,
    NVPROF,
    CHROME_TRACE,
)
"""The project's own ingesters."""

ENTRY_POINTS = "xsp.ingesters"
"""The entry point group through which other distributions add theirs: each names an Ingester object."""


def all_ingesters() -> tuple[Ingester, ...]:
    """The project's own ingesters and those that installed distributions add."""
    return INGESTERS + _added()


@cache
def _added() -> tuple[Ingester, ...]:
    """Those of other distributions, looked up once: to look costs as much as to read a small trace."""
    points = sorted(entry_points(group=ENTRY_POINTS), key=lambda p: p.name)
    ingesters = {point.name: point.load() for point in points}
    for name, ingester in ingesters.items():
        if not isinstance(ingester, Ingester):
            raise XspError(
                f"the entry point {name} of {ENTRY_POINTS} is no Ingester",
                advice="Remove the distribution that has it, or make its object one of a subclass of Ingester",
            )
    return tuple(ingesters.values())

"""Trace JSON of TensorFlow's and JAX's profilers: `*.trace.json.gz`, which TensorBoard's trace viewer shows."""

from xsp_ingest.formats.xplane.trace_json.ingester import XlaTraceJson

__all__ = ["XLA_TRACE_JSON"]

XLA_TRACE_JSON = XlaTraceJson()

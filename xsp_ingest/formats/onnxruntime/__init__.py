"""ONNX Runtime profiles: the JSON that a session with `enable_profiling` writes."""

from xsp_ingest.formats.onnxruntime.ingester import OnnxRuntime

__all__ = ["ONNXRUNTIME"]

ONNXRUNTIME = OnnxRuntime()
"""The one instance."""

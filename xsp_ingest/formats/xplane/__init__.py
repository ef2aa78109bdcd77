"""XPlane: the profiles that TensorFlow and JAX write, `*.xplane.pb`."""

from xsp_ingest.formats.xplane.ingester import XPlane

__all__ = ["XPLANE"]

XPLANE = XPlane()

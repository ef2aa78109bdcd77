"""GraphML of the networkx view, for graph tools."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_analyze.export.target import Exporter
from xsp_model import XspError
from xsp_model.errors import require
from xsp_model.limits import limits

if TYPE_CHECKING:
    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = ["GRAPHML"]

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _write(trace: Trace, file: Sink) -> None:
    networkx = require("networkx", purpose="GraphML", extra="networkx")
    count, max_spans = trace.row_count, limits().graphml_max_spans
    if count > max_spans:
        raise XspError(
            f"{count:,} spans are too many for GraphML, which takes up to {max_spans:,}",
            advice="Choose a step with --steps N, or levels with --levels model,layer,kernel",
        )
    graph = trace.to_networkx()
    for _, attributes in graph.nodes(data=True):
        attributes["name"] = _NOT_XML.sub("\ufffd", str(attributes["name"]))
    # The writer built on xml.etree gives the same bytes whether or not lxml is installed.
    networkx.readwrite.graphml.write_graphml_xml(graph, file)
    file.write(b"\n")


GRAPHML = Exporter("graphml", "GraphML of the span graph, for networkx, Gephi and yEd", _write)
"""The format, as the registry lists it."""

"""TensorFlow 1 timelines: the Chrome JSON that `tensorflow.python.client.timeline` makes of a RunMetadata."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_ingest.ingester import Ingester, Match

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["TF_TIMELINE"]

_OBJECT = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"traceEvents"\s*:\s*\[')
_ALLOCATORS = re.compile(rb'"name"\s*:\s*"Allocators"')  # the first process of every timeline


class TfTimeline(Ingester):
    """The ingester of `timeline.Timeline(step_stats).generate_chrome_trace_format()`."""

    name: str = "tf_timeline"
    title: str = "TensorFlow 1 timeline (RunMetadata as Chrome JSON), plain or gzip; seen: TensorFlow 1.1 and 2.21"

    def sniff(self, probe: Probe) -> Match:
        """A JSON object of trace events one of whose processes is called `Allocators`."""
        return Match.exact_if(_OBJECT.match(probe.text) and _ALLOCATORS.search(probe.text))

    def read(self, path: Path, options: Options) -> RawTrace:  # noqa: ARG002 (a timeline has no ranges to choose from)
        """The file's rows; XspError where it is no timeline or holds no operator."""
        from xsp_ingest.formats.tf_timeline.reader import shape

        return shape(path)


TF_TIMELINE = TfTimeline()

"""The log that PyTorch writes of its compiler."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_ingest.ingester import Ingester, Match
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.files.content import Probe
    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["TORCH_TRACE_LOG"]

_HEAD = re.compile(rb"\A[VIWE]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+:\d+\] \{")


class _TorchTraceLog(Ingester):
    name: str = "torch_trace_log"
    title: str = (
        "PyTorch compiler log (TORCH_TRACE with INDUCTOR_PROVENANCE=1), with its torch.profiler trace; seen: 2.13"
    )
    is_supplement: bool = True

    def sniff(self, probe: Probe) -> Match:
        """A first line as glog writes it, with a JSON object behind."""
        return Match.exact_if(_HEAD.match(probe.text))

    def read(self, path: Path, options: Options) -> RawTrace:
        """Never: the log has no times of kernels."""
        from xsp_ingest.formats.compiled_code.log.artifacts import read_log

        del options
        read_log(path)  # one that says nothing says so first
        raise XspError(
            "a log of PyTorch's compiler says what kernels are made of, but not when they ran",
            path=path,
            advice="Give it together with the torch.profiler trace of the same process",
        )

    def supplement(self, path: Path, runs: Sequence[RawTrace]) -> Sequence[RawTrace]:
        """The runs with the layers and sources of their compiled kernels."""
        from xsp_ingest.formats.compiled_code.join import join_code
        from xsp_ingest.formats.compiled_code.log.artifacts import read_log

        return join_code(path, read_log(path), runs)


TORCH_TRACE_LOG = _TorchTraceLog()

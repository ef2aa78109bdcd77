"""The record that our torch runner leaves beside the trace of a compiled run."""

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

__all__ = ["COMPILED_CODE"]

_HEAD = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"schema"\s*:\s*"xsp compiled code"')


class _CompiledCode(Ingester):
    name: str = "compiled_code"
    title: str = (
        "compiled_code.json of our torch runner, together with its trace: the layers of compiled kernels; version 1"
    )
    is_supplement: bool = True

    def sniff(self, probe: Probe) -> Match:
        """A JSON object that starts with the name of its schema."""
        return Match.exact_if(_HEAD.match(probe.text))

    def read(self, path: Path, options: Options) -> RawTrace:
        """Never: the file has no times."""
        from xsp_ingest.formats.compiled_code.record.mapping import read_mapping

        del options
        read_mapping(path)  # a file that is damaged says so first
        raise XspError(
            "compiled_code.json says what compiled kernels are made of, but not when they ran",
            path=path,
            advice="Give it together with the torch.profiler trace of the same run, or give the folder that holds both",
        )

    def supplement(self, path: Path, runs: Sequence[RawTrace]) -> Sequence[RawTrace]:
        """The runs with the layers of their compiled kernels."""
        from xsp_ingest.formats.compiled_code.join import join_code
        from xsp_ingest.formats.compiled_code.record.mapping import read_mapping

        return join_code(path, read_mapping(path), runs)


COMPILED_CODE = _CompiledCode()

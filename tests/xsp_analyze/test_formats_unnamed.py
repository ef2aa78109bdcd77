"""Analyses know formats by what they register in `RECORDERS`, and never by name."""

from __future__ import annotations

import ast
from pathlib import Path

import xsp_analyze
from xsp_ingest.registry import FORMATS
from xsp_model.vocabulary import RECORDERS

_ANALYZE = Path(xsp_analyze.__file__).parent
_FORMATS = {each.name for each in FORMATS}
_OTHER_NAMES = {  # formats that are written, and frameworks
    "export/jaeger.py": {"jaeger", "otlp"},
    "pages/report/summary.py": {"mxnet", "onnxruntime", "tensorrt"},
}


def test_recorders_are_of_formats_that_there_are() -> None:
    assert RECORDERS.keys() <= _FORMATS


def test_no_module_of_the_analyses_names_a_format() -> None:
    named = {
        f"{path.relative_to(_ANALYZE)}:{node.lineno}: {node.value}"
        for path in _ANALYZE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and node.value in _FORMATS - _OTHER_NAMES.get(path.relative_to(_ANALYZE).as_posix(), set())
    }
    assert not named

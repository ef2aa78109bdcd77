"""What vLLM, SGLang and TensorRT-LLM write as a module's range: a dict of its path and the shapes of its tensors."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BEGINS", "MAX_LENGTH", "ModuleText", "module_text"]

BEGINS = r"""^\{\s*['"]Module['"]\s*:"""
"""How such a text begins, as a regex."""

MAX_LENGTH = 1 << 16
"""No longer text is read: a call with hundreds of tensors writes a tenth of it."""

_TOKEN = re.compile(r"""'([^'\\]*)'|"[^"\\]*"|[()]|\bNone\b|\bTrue\b|\bFalse\b|,(?=\s*[)\]}])""")
_JSON_OF = {"(": "[", ")": "]", "None": "null", "True": "true", "False": "false", ",": ""}
_FACTS = ("Module", "TrainableParams", "StaticParams", "Inputs", "Outputs")
_COMPILED = re.compile(r"^Torch Compiled Module \((input|output)\):")
_CLASSES = {
    "in_features": "Linear",
    "num_embeddings": "Embedding",
    "in_chan": "Conv",
    "num_features": "BatchNorm",
    "ceil_mode": "AvgPool",
    "output_size": "AdaptiveAvgPool",
    "filter_dim": "MaxPool",
    "scale_factor": "Upsample",
    "p": "Dropout",
    "in_place": "ReLU",
}
"""The class of torch.nn whose parameters have this name, the first that fits."""


@dataclass(frozen=True, slots=True)
class ModuleText:
    """Path and type of a module, and the shapes of its inputs as JSON; null: not said.

    `returned`: the range only says what the call before it returned; null: it says neither inputs nor outputs.
    """

    path: str
    layer_type: str
    shapes: str | None
    returned: bool | None


def module_text(text: str) -> ModuleText | None:
    """What the text says; None where it is too long or not of this form."""
    facts = _parse_dict(text) if len(text) <= MAX_LENGTH else {}
    path = facts.get("Module")
    if not isinstance(path, str) or not path.strip("' "):
        return None
    compiled = _COMPILED.match(path)
    path = path[compiled.end() :] if compiled else path.strip("' ")
    inputs = [s for name, value in facts.items() if name == "Inputs" or name not in _FACTS for s in _shapes(value)]
    returned = not inputs if inputs or "Outputs" in facts else None
    if compiled:
        returned = compiled[1] == "output"
    return ModuleText(path, _type(path, facts.get("StaticParams")), json.dumps(inputs) if inputs else None, returned)


def _parse_dict(text: str) -> Mapping[str, object]:
    """The dict that Python wrote, read as the JSON that it nearly is; empty where it is none."""
    try:
        facts = json.loads(_TOKEN.sub(_as_json, text))
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _as_json(token: re.Match[str]) -> str:
    return _JSON_OF.get(token[0], token[0]) if token[1] is None else json.dumps(token[1])


def _shapes(value: object) -> list[list[int]]:
    """The shapes in a list of shapes; of anything else none."""
    return [shape for shape in value if _is_shape(shape)] if isinstance(value, list) else []


def _is_shape(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(size) is int for size in value)


def _type(path: str, static: object) -> str:
    """The class of torch.nn that has these parameters; else the module's name in its parent, of a list's the list's."""
    parameters = static if isinstance(static, dict) else {}
    layer_type = next((name for key, name in _CLASSES.items() if key in parameters), None)
    if layer_type == "Conv":
        size = parameters.get("filter_dim")
        dimensions = f"{len(size)}d" if isinstance(size, list) else ""
        return f"Conv{'Transpose' if parameters.get('transposed') else ''}{dimensions}"
    return layer_type or next((part for part in reversed(path.split(".")) if part and not part.isdigit()), path)

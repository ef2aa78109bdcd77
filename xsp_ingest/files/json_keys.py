"""The keys at the start of a JSON object, without those of objects in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_ingest.files.json_window import TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["outer_keys"]

_COLON = re.compile(rb"\s*+:")


def outer_keys(head: bytes) -> Iterator[bytes]:
    """The keys of the outermost object, as written, as far as the text goes."""
    depth = 0
    for token in TOKEN.finditer(head):
        if depth == 1 and token[0][:1] == b'"' and len(token[0]) > 1 and _COLON.match(head, token.end()):
            yield token[0][1:-1]
        depth += (token[0] in b"[{") - (token[0] in b"]}")

"""The lines of source that an instruction comes from, as the program's metadata says."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from xsp_ingest.formats.xplane.messages import message
from xsp_ingest.formats.xplane.programs.graph import DAMAGE, text_in

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SourceLines", "without_home"]

_MAX_LINES = 4
_MAX_DEPTH = 256
_HOME = re.compile(r"^(?:/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:[\\/]Users[\\/][^\\/]+)[\\/]")
_LIBRARY = re.compile(r"^.*[\\/](?:site|dist)-packages[\\/]")


def without_home(path: str) -> str:
    """The path without the home directory or the environment that it lies in, whose names tell of people."""
    return _HOME.sub("", _LIBRARY.sub("", path))


class SourceLines:
    """Of one program: `of` an instruction's metadata, as `file:line function`, innermost first, joined by `; `."""

    def __init__(self, module: Any) -> None:  # noqa: ANN401 (a message of protobuf)
        self._raw = module.stack_frame_index
        self._texts: dict[int, str | None] = {}

    @cached_property
    def _index(self) -> Any:  # noqa: ANN401
        try:
            return message("HloStackFrames").FromString(self._raw)
        except DAMAGE:
            return message("HloStackFrames")()

    def of(self, metadata: Any) -> str | None:  # noqa: ANN401
        """None where the program does not say."""
        frame = metadata.stack_frame_id
        if frame not in self._texts:
            self._texts[frame] = "; ".join(self._lines(frame)) or None
        file = without_home(text_in(metadata.source_file))
        return self._texts[frame] or (f"{file}:{metadata.source_line}" if file and metadata.source_line > 0 else None)

    def _lines(self, number: int) -> list[str]:
        """The innermost lines outside libraries, or where all are in libraries the innermost of those."""
        frames = list(self._frames(number))
        own = [frame for frame in frames if not _LIBRARY.match(frame[0])]
        return [
            f"{without_home(file)}:{line} {function}".rstrip() for file, line, function in (own or frames)[:_MAX_LINES]
        ]

    def _frames(self, number: int) -> Iterator[tuple[str, int, str]]:
        """File, line and function from the frame of this number, counted from 1, outwards; 0 is none."""
        index = self._index
        for _ in range(_MAX_DEPTH):
            if not 0 < number <= len(index.frames):
                return
            frame = index.frames[number - 1]
            number = frame.parent
            if not 0 < frame.location <= len(index.locations):
                return
            location = index.locations[frame.location - 1]
            file, function = (
                text_in(names[at - 1]) if 0 < at <= len(names) else ""
                for names, at in ((index.file_names, location.file), (index.function_names, location.function))
            )
            if file:
                yield file, location.line, function

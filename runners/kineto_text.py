"""Takes private data and noise out of a torch.profiler trace, leaving the rest as the profiler wrote it.

The text of an event that stays is copied, never parsed and printed again: a float would lose nanoseconds.
"""

from __future__ import annotations

import json
from pathlib import PurePath

__all__ = ["without_private_data"]

_MODULE = "nn.Module: "
_PRIVATE_KEYS = ("host_name", "hostName", "user", "username")


def without_private_data(trace: str, *, python_calls: bool = False) -> str:
    """The trace without host and user names and folders; times stay character by character as they were.

    Without `python_calls`, Python functions that are no modules are left out too: they are most of a
    file and name the user's own sources.
    """
    decode = json.JSONDecoder().raw_decode
    parts: list[str] = []
    at = trace.index("{") + 1
    while (at := _skip(trace, at)) < len(trace) and trace[at] != "}":
        key, at = decode(trace, at)
        at = _skip(trace, at)
        if key == "traceEvents":
            events, at = _kept_events(trace, at + 1, python_calls=python_calls)
            parts.append('"traceEvents": [\n' + ",\n".join(events) + "\n]")
            continue
        value, at = decode(trace, at)
        if key not in _PRIVATE_KEYS:
            public = PurePath(value).name if key == "traceName" else value
            parts.append(f"{json.dumps(key)}: {json.dumps(public)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _skip(text: str, at: int) -> int:
    """The next position that is neither white space nor a separator."""
    while at < len(text) and text[at] in " \t\r\n,:":
        at += 1
    return at


def _kept_events(trace: str, at: int, *, python_calls: bool) -> tuple[list[str], int]:
    """The events' own text, and the position after their list."""
    decode = json.JSONDecoder().raw_decode
    kept = []
    while trace[at := _skip(trace, at)] != "]":
        event, end = decode(trace, at)
        text = trace[at:end]
        if event.get("cat") == "python_function" and not event["name"].startswith(_MODULE):
            text = _without_folders(text, event["name"]) if python_calls else ""
        if text:
            kept.append(" ".join(line.strip() for line in text.splitlines()))
        at = end
    return kept, at + 1


def _without_folders(text: str, name: str) -> str:
    """The event of a Python function with `/home/someone/train.py(3): f` as `train.py(3): f`."""
    source, mark, rest = name.partition("(")
    short = PurePath(source).name + mark + rest if source.startswith("/") else name
    return text.replace(json.dumps(name, ensure_ascii=False), json.dumps(short, ensure_ascii=False))

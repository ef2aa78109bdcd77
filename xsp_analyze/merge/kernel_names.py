"""One spelling for a kernel's name, whichever profiler wrote it."""

from __future__ import annotations

import re

__all__ = ["base_name", "normal_name"]

_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"<unnamed>|\{anonymous\}|\(anonymous namespace\)|_GLOBAL__N__\w+"), "(anonymous)"),
    (re.compile(r"\(bool\)\s*0\b|\bfalse\b"), "0"),
    (re.compile(r"\(bool\)\s*1\b|\btrue\b"), "1"),
    (re.compile(r"\((?:unsigned )?(?:char|short|int|long|long long)\)\s*(-?\d+)"), r"\1"),  # (int)4: a template value
    (re.compile(r"\b(-?\d+)[uUlL]+\b"), r"\1"),  # 3ul
    (re.compile(r"\[lambda\(([^\[\]]*)\) \(instance (\d+)\)\]"), r"{lambda(\1)#\2}"),
    (re.compile(r"\{lambda\(([^{}]*)\)#(\d+)\}"), r"{lambda#\2}"),  # some profilers leave out the parameters
    (re.compile(r"\bunsigned (?=char|short|int|long)"), "u"),
    (re.compile(r"\bstd::__1::|\bstd::__cxx11::"), "std::"),
    (re.compile(r"^(?:void|static|__global__)\s+"), ""),
    (re.compile(r"\s+"), ""),
)
_CLONE = re.compile(r"\s*\[clone [^\]]*\]$")


def normal_name(name: str) -> str:
    """The whole name without what profilers spell differently: blanks, casts of template values, unnamed namespaces."""
    name = _CLONE.sub("", name.strip())
    for pattern, spelling in _SPELLINGS:
        name = pattern.sub(spelling, name)
    return name


def base_name(name: str) -> str:
    """The function alone: no return type, namespaces, template arguments or parameters."""
    depth, kept = 0, []
    for character in normal_name(name).replace("operator()", "call").replace("(anonymous)::", ""):
        if character in "<({[":
            if character == "(" and depth == 0:
                break
            depth += 1
        elif character in ">)}]":
            depth -= 1
        elif depth == 0:
            kept.append(character)
    return "".join(kept).rsplit("::", 1)[-1]

"""What the page does not show for want of it in the trace: each part with why, and how to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.pages.blocks import Section
    from xsp_analyze.service.answers import Answers

__all__ = ["ids_of", "shown_and_missing"]

_ANSWERED_BY: Mapping[str, str] = {  # the analysis without which a section has nothing to show
    "tree": "A10", "timeline": "A10", "layers": "A02", "gpu": "A13", "types": "A06", "kernels": "A10", "devices": "B03",
    "modules": "B06", "overhead": "B02", "model": "A01", "ledger": "B01",
}  # fmt: skip
_OPTIONAL: Mapping[str, tuple[str, str]] = {  # made only where they have something: label, analysis
    "gain": ("Time to gain", "B23"), "overhead": ("Profiling overhead", "B02"),
    "serving": ("Prefill and decode", "B20"), "rooflines": ("Rooflines", "B11"),
}  # fmt: skip
_Missing = dict[str, Any]


def shown_and_missing(answers: Answers, sections: Sequence[Section | None]) -> tuple[list[Section], list[_Missing]]:
    """The sections that show something; and of the others id, label, why it is not here and how to get it.

    Of every other analysis without an answer the same, by its id.
    """
    made = [one for one in sections if one is not None]
    empty = [one for one in made if one["blocks"] and all(block["type"] == "missing" for block in one["blocks"])]
    shown = [_without_unanswered(one) for one in made if one not in empty]
    missing = [_of_section(answers, one) for one in empty]
    missing += [
        _entry(identity, label, _why(answers, analysis), answers.advice_on(analysis))
        for identity, (label, analysis) in _OPTIONAL.items()
        if identity not in {one["id"] for one in made} and isinstance(answers.of(analysis), str)
    ]
    covered = {_ANSWERED_BY.get(one["id"]) or _OPTIONAL.get(one["id"], ("", ""))[1] for one in missing}
    return shown, missing + [one for one in _analyses(answers, made) if one["id"] not in covered]


def _of_section(answers: Answers, one: Section) -> _Missing:
    why = " ".join(dict.fromkeys(block["text"] for block in one["blocks"]))
    analysis = _ANSWERED_BY.get(one["id"])
    return _entry(one["id"], one["title"], why, answers.advice_on(analysis) if analysis else "")


def _why(answers: Answers, analysis: str) -> str:
    result = answers.of(analysis)
    return result if isinstance(result, str) else ""


def _without_unanswered(one: Section) -> Section:
    """The list of analyses without those that have no answer."""
    blocks = [
        {**block, "items": [item for item in block["items"] if not item["missing"]]}
        if block["type"] == "analyses"
        else block
        for block in one["blocks"]
    ]
    return {**one, "blocks": blocks}


def _analyses(answers: Answers, sections: Sequence[Section]) -> list[_Missing]:
    items = [
        item for one in sections for block in one["blocks"] if block["type"] == "analyses" for item in block["items"]
    ]
    return [
        _entry(item["id"], f"{item['id']} {item['title']}", item["missing"], answers.advice_on(item["id"]))
        for item in items
        if item["missing"]
    ]


def _entry(identity: str, label: str, why: str, how: str) -> _Missing:
    return {"id": identity, "label": label, "why": why, "how": f"{how.rstrip('.')}." if how else ""}


def ids_of(sections: Sequence[Section]) -> set[str]:
    """What links into the page may lead to: sections, and the analyses in them."""
    analyses = {
        item["id"]
        for one in sections
        for block in one["blocks"]
        if block["type"] == "analyses"
        for item in block["items"]
    }
    return {one["id"] for one in sections} | analyses

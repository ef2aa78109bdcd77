"""The data files of the classification: each entry takes its own example, and no entry before it does."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from xsp_analyze.classification.classify import (
    Entry,
    KernelClass,
    Matcher,
    Pattern,
    kernel_entries,
    operator_entries,
    operator_type,
    precision_entries,
)


@dataclass(frozen=True)
class _One:
    pattern: Pattern


def test_the_time_for_a_long_name_grows_with_its_length() -> None:
    """Python tries the first pattern in every way that there is: more of them than seconds since the big bang."""
    slow, begins = _One(Pattern("(x+)+y")), _One(Pattern("^gemm"))
    matcher = Matcher([slow, begins])
    assert matcher.first("x" * 3_000) is None
    assert matcher.first("gemm" + "x" * 100_000) is begins
    assert matcher.first("x" * 100_000 + "y") is None  # what a kernel is stands at the beginning


def _first(entries: tuple[Entry, ...], text: str) -> Entry | None:
    return next((entry for entry in entries if entry.pattern.search(text)), None)


@pytest.mark.parametrize("entry", kernel_entries(), ids=lambda e: e.example[:40])
def test_an_example_of_a_kernel_is_taken_by_its_own_entry(entry: Entry) -> None:
    assert _first(kernel_entries(), entry.example) is entry


@pytest.mark.parametrize("entry", operator_entries(), ids=lambda e: e.example[:40])
def test_an_example_of_an_operator_is_taken_by_its_own_entry(entry: Entry) -> None:
    assert _first(operator_entries(), operator_type(entry.example)) is entry


def test_an_example_of_a_precision_is_taken_by_its_own_entry() -> None:
    entries = precision_entries()
    taken = [next(e for e in entries if e.pattern.search(entry.example)) for entry in entries]
    assert [e.precision for e in taken] == [e.precision for e in entries]


def test_every_class_but_other_is_told_by_a_kernel_s_name() -> None:
    assert {entry.kernel_class for entry in kernel_entries()} == set(KernelClass) - {KernelClass.OTHER}


def test_only_communication_names_a_collective() -> None:
    for entry in (*kernel_entries(), *operator_entries()):
        assert entry.collective is None or entry.kernel_class == KernelClass.COMMUNICATION


@pytest.mark.slow
def test_many_texts_at_once_are_taken_as_each_by_itself() -> None:
    texts = [e.example for e in (*kernel_entries(), *operator_entries())] + [e.example for e in precision_entries()]
    texts += [text.swapcase() for text in texts] + ["", "mystery", "K" * 2_000]
    for entries in (kernel_entries(), operator_entries()):
        together: Matcher[Entry] = Matcher(entries)
        together.learn(texts)
        assert [together.first(text) for text in texts] == [_first(entries, text) for text in texts]
    precisions = Matcher(precision_entries())
    precisions.learn(texts)
    alone = [next((e for e in precision_entries() if e.pattern.search(text)), None) for text in texts]
    assert [precisions.first(text) for text in texts] == alone

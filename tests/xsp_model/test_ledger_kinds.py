"""Every entry of the ledger is of a kind that is declared."""

import pytest

from xsp_model import Attribution, Finding, LedgerKind, Severity


def test_a_finding_says_what_its_kind_says_unless_told_otherwise() -> None:
    kind = LedgerKind.DROPPED_RECORDS
    plain = Finding(kind, count=3)
    assert (plain.detail, plain.severity, plain.advice) == (kind.sentence, kind.severity, kind.advice)
    own = Finding(kind, "gone", 3, Severity.ERROR, advice="Call again")
    assert (own.detail, own.severity, own.advice) == ("gone", Severity.ERROR, "Call again")


def test_a_kind_that_is_not_declared_is_refused() -> None:
    with pytest.raises(ValueError, match="no_such_kind"):
        Finding("no_such_kind")  # type: ignore[arg-type]


def test_each_kind_has_a_sentence_and_its_name_is_what_is_stored() -> None:
    assert all(kind.sentence and kind.name.lower() == kind.value for kind in LedgerKind)


def test_each_place_that_device_time_goes_to_is_a_kind() -> None:
    assert {str(attribution) for attribution in Attribution} <= {str(kind) for kind in LedgerKind}

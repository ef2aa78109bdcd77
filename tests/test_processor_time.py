"""A tier that outgrows its budget is named, and no other."""

from __future__ import annotations

from tests.helpers.processor_time import over_budget


def test_a_tier_over_its_budget_is_a_warning() -> None:
    took_s = {"quick": 481.2, "slow": 900.0, "of no budget": 10_000.0}
    assert over_budget(took_s, {"quick": 480.0, "slow": 1_800.0}) == [
        "WARNING: tier quick took 481 s of processor time, its budget is 480 s"
    ]

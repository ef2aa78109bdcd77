"""Who may read counters, by what the driver and the kernel say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from xsp_runners.ncu import NO_PERMISSION, refusal

if TYPE_CHECKING:
    from pathlib import Path

_ROOT, _OF_A_CONTAINER, _USER = "000001ffffffffff", "00000000a80425fb", "0000000000000000"


@pytest.mark.parametrize(
    ("administrators_only", "capabilities", "sentence"),
    [
        (1, _ROOT, None),
        (1, _OF_A_CONTAINER, NO_PERMISSION),  # root there, without --cap-add=SYS_ADMIN
        (1, _USER, NO_PERMISSION),
        (0, _USER, None),
    ],
)
def test_administrators_read_counters_and_others_where_the_driver_lets_them(
    tmp_path: Path, administrators_only: int, capabilities: str, sentence: str | None
) -> None:
    driver, process = tmp_path / "params", tmp_path / "status"
    driver.write_text(
        f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {administrators_only}\nTemporaryFilePath: x\n"
    )
    process.write_text(f"Name:\tpython\nCapPrm:\t{_ROOT}\nCapEff:\t{capabilities}\n")
    assert refusal(driver, process) == sentence


def test_where_nothing_is_said_ncu_is_asked(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none", tmp_path / "none") is None

"""What changes would gain, asked in Python."""

from __future__ import annotations

import pytest

from tests.helpers.hand import waiting_loop
from xsp.api.open_trace import OpenTrace
from xsp_model import XspError


def test_python_has_gains_and_slack() -> None:
    trace = OpenTrace(waiting_loop().build())
    answer = trace.what_if(scale=["kernel:sgemm=0.5"], input=0)
    assert [round(each.gain_ns) for each in (*answer.alone, answer.together)] == [200_000, 100_000, 300_000]
    assert answer.document()["together"]["gain_ns"] == answer.together.gain_ns
    assert set(trace.slack()["slack_ns"]) == {0}
    with pytest.raises(XspError, match="changes nothing"):
        trace.what_if(hosts=0.5)

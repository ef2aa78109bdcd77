"""The worker of the agents' server: whose call ends when one is given up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from xsp.agents.service import Service
from xsp.agents.worker import Worker

if TYPE_CHECKING:
    import pytest


def test_giving_up_a_call_that_waits_leaves_the_running_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(Service(()))
    ended: list[str] = []
    monkeypatch.setattr(worker, "end", lambda: ended.append("ended"))
    running, waiting = threading.Event(), threading.Event()
    with worker._lock:
        worker._running = running
        worker.give_up(waiting)
        assert not ended
        worker.give_up(running)
        assert ended == ["ended"]
    assert worker.call("info", {}, waiting).is_error  # its turn came, and nothing was begun
    assert worker._process is None

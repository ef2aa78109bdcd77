"""Units done by the workers of a Dask cluster, which read inputs and write results themselves."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from xsp.batch.unit import Status, UnitOutcome
from xsp.batch.work import process
from xsp_model import XspError
from xsp_model.errors import install_advice
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from xsp.batch.unit import Settings, Unit

__all__ = ["run_on_cluster"]

_AHEAD = 4  # units handed out per thread of the cluster, so that the scheduler never holds all of a large batch
_MIN_AHEAD = 64


def run_on_cluster(
    units: Sequence[Unit], settings: Settings, *, scheduler: str, say: Callable[[str], None]
) -> Generator[UnitOutcome]:
    """The outcomes, in the order in which they come; closing the iterator cancels what is not done.

    XspError where Dask is not installed, the scheduler does not answer, or workers hold another version of xsp.
    """
    client = _client(scheduler)
    try:
        _check_workers(client, settings)
        say(f"dashboard: {client.dashboard_link}")
        yield from _outcomes(client, units, settings)
    finally:
        client.close()


def _client(scheduler: str) -> Any:  # noqa: ANN401 (distributed has no types)
    try:
        from distributed import Client  # noqa: PLC0415 (only for clusters)
    except ImportError as error:
        raise XspError("--scheduler needs Dask, which is not installed", advice=install_advice("cluster")) from error
    try:
        return Client(scheduler, timeout=limits().cluster_timeout_s, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        advice = "Start one with `dask scheduler --host 127.0.0.1 --dashboard-address 127.0.0.1:8787`"
        raise XspError(f"the scheduler does not answer ({reason})", path=scheduler, advice=advice) from error


def _check_workers(client: Any, settings: Settings) -> None:  # noqa: ANN401
    """XspError where there are no workers, or their xsp is not ours: results would differ with who made them."""
    from xsp.batch.unit import own_version  # noqa: PLC0415

    try:
        client.wait_for_workers(1, timeout=limits().cluster_timeout_s)
        versions = client.run(own_version, on_error="return")
    except TimeoutError as error:
        advice = "Start some with `PYTHONSAFEPATH=1 dask worker ADDRESS`"
        raise XspError("the cluster has no workers", path=client.scheduler.address, advice=advice) from error
    for address, version in sorted(versions.items()):
        if isinstance(version, OSError):
            continue  # it has gone meanwhile, and another may come in its place
        if isinstance(version, Exception):
            advice = "Install the same version on all machines"
            raise XspError(f"the worker {address} cannot import xsp ({version})", advice=advice)
        if version != settings.version:
            raise XspError(
                f"the worker {address} has {version}, and this is {settings.version}",
                advice="Install the same version on all machines",
            )


def _outcomes(client: Any, units: Sequence[Unit], settings: Settings) -> Generator[UnitOutcome]:  # noqa: ANN401
    from distributed import as_completed  # noqa: PLC0415

    rest = iter(enumerate(units))
    of_future: dict[Any, Unit] = {}

    def hand_out(number: int, unit: Unit) -> Any:  # noqa: ANN401
        key = f"xsp-batch-{number}-{unit.name}"
        future = client.submit(process, unit, settings, key=key, pure=False, retries=0)
        of_future[future] = unit
        return future

    ahead = max(_MIN_AHEAD, _AHEAD * sum(client.nthreads().values()))
    waiting = as_completed([hand_out(*one) for one in islice(rest, ahead)], loop=client.loop)
    for future in waiting:
        yield _outcome(future, of_future.pop(future))
        for one in islice(rest, 1):
            waiting.add(hand_out(*one))


def _outcome(future: Any, unit: Unit) -> UnitOutcome:  # noqa: ANN401
    """What the worker said; a unit that killed its workers, or whose result did not arrive, has failed."""
    error = future.exception()
    if error is None:
        outcome: UnitOutcome = future.result()
        return outcome
    reason = " ".join(str(error).split())
    sentence = f"{unit.inputs[0]}: its worker died or was lost ({type(error).__name__}: {reason})"
    return UnitOutcome(unit, Status.FAILED, sentence)

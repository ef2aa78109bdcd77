"""A history of runs, on disk or an object store: `xsp.history.open(STORE).facts()`."""

from xsp.history.store import Store, open  # noqa: A004 (xsp.history.open is what people will type)

__all__ = ["Store", "open"]

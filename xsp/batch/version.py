"""Which xsp this is: results of one version are not taken for those of another."""

from __future__ import annotations

__all__ = ["own_version"]


def own_version() -> str:
    """Version of the package and of the schema that it writes."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    from xsp_model.schema import SCHEMA_VERSION  # noqa: PLC0415 (--help must not wait for pyarrow)

    try:
        return f"xsp {version('xsp')}, schema {SCHEMA_VERSION}"
    except PackageNotFoundError:
        return f"xsp from a checkout, schema {SCHEMA_VERSION}"

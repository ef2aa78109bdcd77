"""The page about all formats is what the registry and the packages say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from xsp_ingest.registry import about, all_ingesters, page

if TYPE_CHECKING:
    from xsp_ingest.ingester import Ingester

_REPO = Path(__file__).resolve().parents[3]


def test_the_page_is_up_to_date() -> None:
    """Make it anew with `xsp formats --markdown > docs/formats.md`."""
    assert (_REPO / "docs" / "formats.md").read_text(encoding="utf-8") == page(all_ingesters())


@pytest.mark.parametrize("ingester", all_ingesters(), ids=lambda ingester: ingester.name)
def test_a_format_tells_about_itself_in_its_package(ingester: Ingester) -> None:
    text = about(ingester)
    assert text.startswith("# ")
    assert len(text.split()) > 60


def test_names_of_formats_are_unique() -> None:
    assert len({i.name for i in all_ingesters()}) == len(all_ingesters())

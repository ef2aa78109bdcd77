"""A secret in every text of a file: the trace has only those that stand where names stand, and all of these are listed.

planted_secrets.toml lists of each fixture `needed`, texts that are left as they are, as the file is not recognised or
says something else without them, and `shown`, those that reach the trace. A text that joins them is a choice: names of
work and of hardware may, what tells of people, machines and folders may not (SECURITY.md).
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fuzz.seeds import Seed, formats, seeds
from tests.helpers.secrets import Planter
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from xsp_model import Trace

pytestmark = pytest.mark.slow

_LISTED = tomllib.loads(Path(__file__).with_suffix(".toml").with_stem("planted_secrets").read_text(encoding="utf-8"))
_SEEDS = {seed.name: seed for name in formats() for seed in seeds(name)}
_NO_TEXTS = {"run_set", "ncu_report", "nsys_report"}  # descriptions of our own; closed formats, which are refused


def _converted(seed: Seed, planter: Planter | None, folder: Path) -> Trace:
    for name in (each for each in seed.files if each != "run.json"):
        content = (seed.folder / name).read_bytes()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(planter.planted(content) if planter else content)
    return convert(sorted(folder.iterdir()), Options())


def _texts(trace: Trace) -> list[str]:
    return [trace.frame(name).write_json() for name in TABLES]


@pytest.mark.parametrize("name", sorted(_LISTED))
def test_only_what_is_listed_reaches_the_trace(name: str, tmp_path: Path) -> None:
    planter = Planter(_LISTED[name]["needed"])
    (tmp_path / "planted").mkdir()
    (tmp_path / "plain").mkdir()
    trace = _converted(_SEEDS[name], planter, tmp_path / "planted")
    plain = _converted(_SEEDS[name], None, tmp_path / "plain")
    assert planter.origins
    assert {table: trace.height(table) for table in TABLES if table != "ledger"} == {
        table: plain.height(table) for table in TABLES if table != "ledger"
    }
    assert planter.sources(_texts(trace)) == _LISTED[name]["shown"]


def test_every_format_with_a_fixture_is_asked() -> None:
    assert set(formats()) - _NO_TEXTS == {name.partition("/")[0] for name in _LISTED}

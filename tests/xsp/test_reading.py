"""The options of reading: declared once, and had from there by everyone who takes them."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import xsp
from tests.helpers.synth import KinetoTrace
from xsp.opening import options_of
from xsp.reading import LayerSource, Reading, defaults, options, reading_of
from xsp_ingest.ingester import Options
from xsp_model import XspError

_REPO = Path(__file__).resolve().parents[2]
_OTHER: dict[str, object] = {
    "format": "torch_profiler",
    "layer_source": "module",
    "model_ranges": ["step"],
    "layer_ranges": ["layer"],
    "nsys": "/opt/nsys",
    "os_runtime": True,
    "keep_private": True,
    "frames": "none",
    "time_range": "1s..2s",
    "process_ids": [7],
    "device_ids": [0],
    "graph_captures": ["captures/"],
    "align_clocks": True,
    "strict_json": True,
    "device": "devices.toml",
    "gpu": "H100 SXM5",
    "work_models": ["models.toml"],
    "system": "MXNet",
}


def test_a_reading_is_a_value() -> None:
    assert reading_of(_OTHER) == reading_of(_OTHER)
    assert hash(reading_of(_OTHER)) == hash(reading_of(_OTHER))
    assert reading_of({}) == reading_of(dict.fromkeys(_OTHER)) == Reading()


@pytest.mark.parametrize("name", list(options()))
def test_only_options_that_decide_a_conversion_tell_digests_apart(name: str) -> None:
    other = reading_of({name: _OTHER[name]})
    assert other != Reading()
    assert (other.digest() != Reading().digest()) == options()[name].decides


@pytest.mark.parametrize("name", [name for name, option in options().items() if option.decides])
def test_what_decides_a_conversion_is_not_for_bundles(name: str, tmp_path: Path) -> None:
    made = KinetoTrace()
    made.operator("aten::mm", 10, 40)
    xsp.open(made.write(tmp_path / "trace.json")).save(tmp_path / "trace.xsp")
    if options()[name].of_bundles:
        return
    with pytest.raises(XspError, match="source files; this bundle is already converted"):
        xsp.open(tmp_path / "trace.xsp", **{name: _OTHER[name]})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [("process_ids", ["7"]), ("time_range", 5), ("format", 7), ("align_clocks", "no"), ("model_ranges", [1]),
     ("graph_captures", [1]), ("device_ids", [True])],
)  # fmt: skip
def test_a_value_is_of_the_type_of_its_option(name: str, value: object) -> None:
    with pytest.raises(XspError, match=f"^{name} takes values of type "):
        reading_of({name: value})


def test_a_layer_source_is_one_of_four() -> None:
    assert reading_of({"layer_source": "module"}).layer_source is LayerSource.MODULE
    with pytest.raises(XspError, match=r"'modules' is no layer source\. Choose of auto, module, range, operator"):
        reading_of({"layer_source": "modules"})


def test_python_has_every_option_by_its_name_and_says_what_it_is() -> None:
    parameters = inspect.signature(xsp.open).parameters
    assert {name: parameters[name].default for name in options()} == defaults()
    assert all(f"    {name}: {option.help}" in (xsp.open.__doc__ or "") for name, option in options().items())
    with pytest.raises(TypeError, match="unexpected keyword argument 'formt'"):
        xsp.open("x", formt="nsys_sqlite")


def test_ingesters_get_what_they_share_and_what_is_for_one_of_them() -> None:
    assert options_of(Reading()) == Options()
    taken = options_of(reading_of(_OTHER))
    assert (taken.layer_source, taken.model_ranges, taken.keep_private) == ("module", ("step",), True)
    assert taken.extra == {"nsys": "/opt/nsys", "os_runtime": ""}
    assert (taken.selection.from_ns, taken.selection.process_ids) == (1_000_000_000, (7,))


_TOY = '    toy: str | None = field(default=None, metadata=_option("--toy", "A toy.", "NAME", reader_specific=True))\n'
_USE = """
import inspect, json, sys
import xsp
from xsp.cli.app import command_named
from xsp.batch.work import completion_record
from xsp.batch.unit import Settings, Unit
from xsp.opening import options_of
from xsp.reading import Reading, reading_of
reading = reading_of({"toy": "drum"})
document = json.loads(completion_record(Unit("a", ()), Settings("out", reading), {}))
print(json.dumps({
    "commands": [c for c in ("info", "batch") if any("--toy" in p.opts for p in command_named(c).params)],
    "python": "toy" in inspect.signature(xsp.open).parameters,
    "key": reading.digest() != Reading().digest(),
    "batch": document["asked"]["reading"]["toy"],
    "reader": options_of(reading).extra,
}))
"""


def test_a_new_option_is_one_line_besides_the_reader_that_takes_it(tmp_path: Path) -> None:
    shutil.copytree(_REPO / "xsp", tmp_path / "xsp", ignore=shutil.ignore_patterns("__pycache__"))
    declared = tmp_path / "xsp" / "reading.py"
    text = declared.read_text(encoding="utf-8")
    declared.write_text(text.replace("    nsys: str", f"{_TOY}    nsys: str", 1), encoding="utf-8")
    path = os.pathsep.join((str(tmp_path), str(_REPO)))
    done = subprocess.run(
        [sys.executable, "-c", _USE], cwd=tmp_path, check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert json.loads(done.stdout) == {
        "commands": ["info", "batch"],
        "python": True,
        "key": True,
        "batch": "drum",
        "reader": {"toy": "drum"},
    }


@pytest.mark.parametrize("value", ["abc", 7])
def test_an_option_of_several_values_takes_no_single_one(value: object) -> None:
    with pytest.raises(XspError, match="model_ranges takes a list, not"):
        reading_of({"model_ranges": value})

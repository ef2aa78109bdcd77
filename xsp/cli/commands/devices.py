"""`xsp devices`: what is known of devices, and how a file says more."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cli.output import print_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model.devices import DeviceSpec, Peak

__all__ = ["devices"]

_SCALES = {"flop/s": 1e12, "op/s": 1e12, "byte/s": 1e9}
_ONE_DECIMAL = 100


class DeviceFormat(StrEnum):
    """How the table is printed."""

    TABLE = "table"
    JSON = "json"


def devices(
    file: Annotated[
        Path | None,
        typer.Option(
            "--device",
            metavar="FILE.toml",
            help="List the devices of this file instead, as `--device` of the other commands reads them.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        DeviceFormat, typer.Option("-f", "--output-format", help="A table, or JSON with every source.")
    ] = DeviceFormat.TABLE,
) -> None:
    """List the devices whose peak rates xsp knows: tera-operations per second, dense, and gigabytes per second.

    What a trace itself says of its device goes before this table, and a file given with --device before both.

    Examples: `xsp devices`, `xsp devices --device ours.toml`.
    """
    from xsp_model.devices import device_table, read_device_file  # noqa: PLC0415 (--help must not wait for it)

    specs = device_table() if file is None else read_device_file(file)
    print_text(_json(specs) if output is DeviceFormat.JSON else _table(specs))


def _json(specs: Sequence[DeviceSpec]) -> str:
    from xsp_model.devices import QUANTITIES  # noqa: PLC0415 (see above)

    return json.dumps(
        [
            {
                "name": spec.name,
                "pattern": None if spec.pattern is None else spec.pattern.pattern,
                "multiprocessor_count": spec.multiprocessor_count,
                "compute_capability": spec.compute_capability,
                "boost_clock_hz": spec.boost_clock_hz,
                "source": spec.source,
                "lacks": [quantity for quantity in QUANTITIES if quantity in spec.lacks],
                "peaks": [_peak(peak) for peak in spec.peaks.values()],
            }
            for spec in specs
        ],
        indent=1,
        ensure_ascii=False,
    )


def _peak(peak: Peak) -> dict[str, object]:
    return {
        "quantity": peak.quantity,
        "value": peak.value,
        "unit": peak.unit,
        "source": peak.source,
        "detail": peak.detail,
    }


def _table(specs: Sequence[DeviceSpec]) -> str:
    """Aligned columns: name, the peaks, the ideal intensity of FP32, the source."""
    from xsp_analyze.render.terminal import table_lines  # noqa: PLC0415
    from xsp_analyze.text.table import of_rows  # noqa: PLC0415
    from xsp_model.devices import QUANTITIES  # noqa: PLC0415

    rates = [(q, "GB/s" if u == "byte/s" else f"T{u}", True, 1) for q, u in QUANTITIES.items()]
    columns = [("device", "", False, 0), *rates, ("fp32 flop/byte", "", True, 2), ("source", "", False, 3)]
    rows = [[spec.name, *(_peak_text(spec, q) for q in QUANTITIES), _ideal(spec), spec.source] for spec in specs]
    return "\n".join(table_lines(of_rows("", columns, rows)))


def _peak_text(spec: DeviceSpec, quantity: str) -> str:
    """The rate; `none` where the device has no units for it, a dash where nobody says."""
    peak = spec.peaks.get(quantity)
    if peak is None:
        return "none" if quantity in spec.lacks else "-"
    value = peak.value / _SCALES[peak.unit]
    return f"{value:.0f}" if value >= _ONE_DECIMAL else f"{value:.3g}"


def _ideal(spec: DeviceSpec) -> str:
    if not {"fp32", "dram"} <= set(spec.peaks):
        return "-"
    return f"{spec.peaks['fp32'].value / spec.peaks['dram'].value:.2f}"

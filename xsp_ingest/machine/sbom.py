"""The bill of materials of the shipped machine code, in CycloneDX: what each file is made of, by what, how again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_ingest.machine import library, shipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["FILE", "bill"]

FILE = "sbom.cdx.json"
_PACKAGE = Path(__file__).parents[1]
_REBUILD = "python -m xsp_ingest.machine.build"


def bill(manifest: Mapping[str, Any]) -> str:
    """The bill of the files that the manifest lists, which must be there; the same for the same files."""
    components = [*_bitcode(manifest["functions"])]
    if made := manifest.get("library"):
        components.append(
            _file(library.FILE, {"made-by": made["made_by"], "made-of": ", ".join(manifest["functions"])})
        )
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "name": "xsp machine code",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            "properties": _properties(
                {"made-by": manifest["made_by"], "rebuild": _REBUILD, "verify": f"{_REBUILD} --check"}
            ),
        },
        "components": components,
    }
    return json.dumps(document, indent=2) + "\n"


def _bitcode(functions: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, entry in functions.items():
        sources = {f"source {one}.py": f"sha256:{_digest(_PACKAGE / f'{one}.py')}" for one in entry["sources"]}
        yield _file(f"{name}.bc", sources)


def _file(name: str, facts: Mapping[str, str]) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": _digest(shipped.FOLDER / name)}]
    return {"type": "file", "name": name, "hashes": hashes, "properties": _properties(facts)}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _properties(facts: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": f"xsp:{name}", "value": value} for name, value in facts.items()]

"""What the project promises about itself: documents that point somewhere, imports that stay light, no private data."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.helpers.files_run import TRACE, files_run
from tests.helpers.fixture_cases import DAMAGED, RUN_SETS, SOUND, FixtureCase
from xsp.cli.table import COMMANDS
from xsp_ingest.registry import all_ingesters

_REPO = Path(__file__).resolve().parents[1]
_DOCUMENTS = sorted([*_REPO.glob("*.md"), *(_REPO / "docs").rglob("*.md"), _REPO / "fixtures" / "README.md"])
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
_MADE = re.compile(r"docs/(analyses|api|formats|project)/[\w.-]+\.md$")  # pages of the site, held to by tests/docs
_NEEDS_A_TOOL = {"ncu_report", "nsys_report"}  # only NVIDIA's programs read them: everywhere the refusal is tested
_PRIVATE = re.compile(rb"/home/\w|/root/|/Users/\w|planted-secret")


@pytest.mark.parametrize("document", _DOCUMENTS, ids=lambda path: str(path.relative_to(_REPO)))
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    targets = _LINK.findall(document.read_text(encoding="utf-8"))
    missing = [t for t in targets if not (document.parent / t).exists()]
    assert [t for t in missing if not _MADE.search((document.parent / t).resolve().as_posix())] == []


@pytest.mark.parametrize("name", ["report", "test"])
def test_the_readme_marks_its_commands_for_ci(name: str) -> None:
    readme = (_REPO / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"<!-- command: {name} -->\n\n    python3 -m venv \S+ && .+\n", readme)


@pytest.mark.parametrize("ingester", all_ingesters(), ids=lambda ingester: ingester.name)
def test_every_format_has_a_fixture(ingester: object) -> None:
    name = getattr(ingester, "name", "")
    cases = DAMAGED if name in _NEEDS_A_TOOL else SOUND
    assert any(case.name.startswith(f"{name}/") for case in cases)


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("xsp_model, xsp_ingest.registry, xsp_analyze.catalog, xsp.cli.main", "torch"),
        ("xsp_runners.torch_profiler", "torch"),
        ("xsp.cli.main", "polars"),
        ("xsp.cli.main", "numba"),
        *((each.module, "polars") for each in COMMANDS),  # whose `--help` is not to wait
        ("xsp_analyze.catalog", "pandas"),
        ("xsp_analyze.catalog", "plotly"),
    ],
)
def test_importing_stays_light(module: str, forbidden: str) -> None:
    program = f"import sys, {module}; sys.exit({forbidden!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=_REPO, check=False).returncode == 0


def test_the_changelog_s_newest_version_is_the_package_s() -> None:
    changelog = (_REPO / "CHANGELOG.md").read_text(encoding="utf-8")
    package = tomllib.loads((_REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    first, *versions = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    assert first == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", each) for each in versions)
    assert versions[0].startswith(f"{package} - ") if versions else f"will be {package}" in changelog


def test_the_lock_pins_what_developing_needs() -> None:
    """By name and version alone: where packages come from is the reader's choice."""
    lines = (_REPO / "requirements-dev.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9._-]*==[A-Za-z0-9.+!]+", each) for each in pins)
    project = tomllib.loads((_REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (
        need for name, needs in project["optional-dependencies"].items() if "runners" not in name for need in needs
    )
    named = {re.split(r"[\[<>=;! ]", need)[0].lower() for need in (*project["dependencies"], *extras)} - {"xsp"}
    assert named <= {each.partition("==")[0] for each in pins}


def test_no_test_imports_another() -> None:
    """What several tests are made of is in tests/helpers."""
    imports = re.compile(r"^\s*(?:from|import) tests\.\S*\btest_\w+", re.MULTILINE)
    tests = (_REPO / "tests").rglob("*.py")
    assert [path.name for path in tests if imports.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("case", SOUND + DAMAGED + RUN_SETS, ids=lambda case: case.name)
def test_a_fixture_holds_nothing_private(case: FixtureCase) -> None:
    for file in case.folder.rglob("*.*"):
        content = file.read_bytes()
        if content.startswith(b"\x1f\x8b") and "truncated" not in case.name:
            content = gzip.decompress(content)
        assert not _PRIVATE.search(content), file.name


@pytest.mark.slow
def test_the_walk_of_a_duration_is_the_code_s() -> None:
    page = (_REPO / "ARCHITECTURE.md").read_text(encoding="utf-8")
    walk = re.findall(r"^\d+\. `([\w/]+\.py)` `(\w+)`", page, re.MULTILINE)
    run, _ = files_run("analyze", TRACE, "-a", "A10", "-f", "json")
    assert 0 < len(walk) <= 10
    assert [(path, function) for path, function in walk if function not in run.get(path, ())] == []

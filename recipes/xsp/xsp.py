"""`nsys recipe xsp`: runs XSP on the reports from within NVIDIA's own tool."""
# ruff: noqa: INP001 (nsys finds a recipe by its folder and metadata.json, not as a package)

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nsys_recipe.lib import nsys_path, recipe
from nsys_recipe.lib.args import Option
from nsys_recipe.log import logger

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_BUNDLE = "trace.xsp"
_PAGE = "report.html"
_NOT_FOUND = (
    "XSP is not here: install it into this Python (`pip install .` in a checkout of it), put `xsp` on PATH, or name it"
    " with $XSP."
)


class Xsp(recipe.Recipe):
    """Converts the reports to one trace, answers all that it can of it, and writes the page."""

    def run(self, context: recipe.Context) -> None:
        """What nsys calls; a failure of XSP ends the recipe with its sentence."""
        super().run(context)
        command = _command()
        if command is None:
            logger.error(_NOT_FOUND)
            sys.exit(1)
        bundle, page = (self.add_output_file(name) for name in (_BUNDLE, _PAGE))
        _call([*command, "convert", *self._parsed_args.input, "-o", bundle, "--nsys", _nsys(), *self._reading()])
        analyze = [*command, "analyze", bundle, "-o", self.get_output_dir(), *self._steps()]
        _call([*analyze, "-f", "parquet"])
        if self._parsed_args.csv:
            _call([*analyze, "-f", "csv"], quiet=True)
        _call([*command, "report", bundle, "-o", page])
        self._finish()

    def _reading(self) -> Sequence[str]:
        arguments = self._parsed_args
        ranges = [part for each in arguments.layer_range or [] for part in ("--layer-range", each)]
        return [*ranges, *(part for each in arguments.model_range or [] for part in ("--model-range", each))]

    def _steps(self) -> Sequence[str]:
        return ["--steps", self._parsed_args.steps] if self._parsed_args.steps else []

    def _finish(self) -> None:
        """The index that nsys keeps of every analysis."""
        made = sorted(Path(self.get_output_dir()).iterdir())
        self._output_files.update({file.name: file.suffix.lstrip(".") or "folder" for file in made})
        self._analysis_dict.update(
            {
                "EndTime": str(datetime.now()),  # noqa: DTZ005 (as nsys writes it)
                "InputFiles": self._parsed_args.input,
                "Outputs": self._output_files,
            }
        )
        self.create_analysis_file()

    @classmethod
    def get_argument_parser(cls) -> argparse.ArgumentParser:
        """The recipe's options."""
        parser = super().get_argument_parser()
        parser.add_recipe_argument(Option.INPUT, required=True)
        parser.add_recipe_argument(Option.OUTPUT)
        parser.add_recipe_argument(Option.FORCE_OVERWRITE)
        parser.add_recipe_argument(Option.CSV)
        parser.add_recipe_argument("--steps", metavar="all|mean|each|N", help="Which steps tables are about")
        for what in ("layer", "model"):
            parser.add_recipe_argument(
                f"--{what}-range",
                metavar="REGEX",
                action="append",
                help=f"NVTX ranges that match are {'layers' if what == 'layer' else 'steps'}",
            )
        return parser


def _command() -> Sequence[str] | None:
    """How XSP is run: as $XSP says, as the command on PATH, or from this Python."""
    path = shutil.which(os.environ.get("XSP") or "xsp")
    if path:
        return [path]
    if "XSP" not in os.environ and importlib.util.find_spec("xsp.cli"):
        return [sys.executable, "-P", "-c", "import sys; from xsp.cli.main import main; sys.exit(main())"]
    return None


def _nsys() -> str:
    """The nsys that runs this recipe."""
    return str(nsys_path.find_installed_file("nsys.exe" if os.name == "nt" else "nsys"))


def _call(command: Sequence[str], *, quiet: bool = False) -> None:
    # No shell: names of reports are arguments, never commands.
    done = subprocess.run(command, check=False, text=True, errors="replace", stderr=subprocess.PIPE)  # noqa: S603
    message = done.stderr.strip()
    if done.returncode:
        logger.error(message.removeprefix("error: ") or f"xsp ended with code {done.returncode}.")
        sys.exit(1)
    if message and not quiet:
        logger.info(message)

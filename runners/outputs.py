"""Checksums of what a step was given and of what came out of it, for run.json; and distances between two runs.

    python -m xsp_runners.outputs distances runs/fp32 runs/bf16     writes into the second run how far it is

A run keeps of each tensor: digest, norm, largest magnitude, how many elements are no number, up to 64 elements evenly
spread, and where the largest element of each of its first 256 rows is. Where `--outputs save` was asked for, outputs
lie beside run.json as NAME.npy too, from which `distances` compares every element.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import math
import re
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.run_folder import RUN, RunnerError, put, put_json, read_json
from xsp_runners.tools.programs import Parser, exit_status

__all__ = ["CHOICES", "UNKNOWN_INPUTS", "Outputs", "StepInputs", "distances", "main"]

CHOICES = ("checksums", "save", "none")
"""What to keep of outputs: checksums alone, the outputs beside them, nothing."""

_SAMPLED = 64
_ROWS = 256
_MAX_TENSORS = 16
_MAX_BYTES = 1 << 28  # of what is read back from a device, and hashed: a second's work
_FOLDER = "outputs"


@dataclass(frozen=True)
class StepInputs:
    """What a step computes on, as the framework has it, and what of its result counts; null: nobody knows."""

    inputs: Any = None
    weights: Any = None
    result: Callable[[Any], object] | None = None


UNKNOWN_INPUTS = StepInputs()
"""Of work that is the user's own."""


class Outputs:
    """Keeps what a run's first step was given and what came out of its last one. It never fails a run."""

    def __init__(self, out: Path, kept: str) -> None:
        self._out = out
        self._kept = kept
        self._tensors: list[dict[str, object]] = []
        self._left = 0
        self._problem: str | None = None

    @property
    def is_enabled(self) -> bool:
        """Whether anything is to be kept."""
        return self._kept != "none"

    def note_inputs(self, inputs: StepInputs) -> None:
        """Before the first step: its weights and inputs."""
        if self.is_enabled:
            self._try_to_keep(lambda: self._add_inputs(inputs))

    def note_output(self, result: object, inputs: StepInputs, *, step: int) -> None:
        """After the last step, before which `step` steps were run."""
        if self.is_enabled and result is not None:
            self._try_to_keep(lambda: self._add("output", inputs.result(result) if inputs.result else result, step))

    @property
    def facts(self) -> dict[str, object]:
        """What run.json says of them; nothing where nothing was kept."""
        facts: dict[str, object] = {"tensors": self._tensors} if self._tensors else {}
        facts |= {"tensors_left_out": self._left} if self._left else {}
        return facts | ({"tensors_problem": self._problem} if self._problem else {})

    def _try_to_keep(self, keep: Callable[[], None]) -> None:
        try:
            keep()
        except Exception as error:  # noqa: BLE001 (a tensor of any framework: the run is worth more than its checksum)
            self._problem = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            print(f"outputs: no checksums: {self._problem}", file=sys.stderr)

    def _add_inputs(self, inputs: StepInputs) -> None:
        if inputs.weights is not None:
            self._add_weights(inputs.weights)
        self._add("input", inputs.inputs, 0)

    def _add(self, kind: str, what: object, step: int) -> None:
        for name, value in _flat(kind, what):
            array = array_of(value)
            if array is None or array.nbytes > _MAX_BYTES or len(self._tensors) >= _MAX_TENSORS:
                self._left += 1
                continue
            self._tensors.append(_tensor_facts(kind, name, array, step))
            if kind == "output" and self._kept == "save":
                _save(self._out, name, array)

    def _add_weights(self, weights: object) -> None:
        described = _weights(dict(_flat("weights", weights)))
        self._tensors += [described] if described else []
        self._left += not described


def _flat(name: str, value: object) -> Iterator[tuple[str, object]]:
    """The tensors inside, each by where it is: `output.logits`, `output.0`."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for index, inner in enumerate(value):
            yield from _flat(f"{name}.{index}" if len(value) > 1 else name, inner)
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        yield name, value


@dataclass(frozen=True)
class _Array:
    """A tensor on the host: its bytes, in row order, and its elements in float64, one after the other."""

    shape: tuple[int, ...]
    dtype: str
    content: Callable[[], bytes]
    values: Callable[[], Any]
    nbytes: int


def array_of(value: Any) -> _Array | None:
    """The tensor of PyTorch, TensorFlow, JAX or numpy on the host, read when asked for; None where it cannot be."""
    shape = tuple(int(size) for size in value.shape)
    dtype = str(value.dtype).removeprefix("torch.").removeprefix("<dtype: '").removesuffix("'>")
    if hasattr(value, "detach"):
        return _of_torch(value, shape, dtype)
    import numpy as np  # noqa: PLC0415 (see `_has_numpy`)

    try:
        array = np.ascontiguousarray(np.asarray(value))
        return _Array(shape, dtype, array.tobytes, lambda: array.astype(np.float64).reshape(-1), array.nbytes)
    except (TypeError, ValueError):  # text, ragged tensors
        return None


def _of_torch(value: Any, shape: tuple[int, ...], dtype: str) -> _Array | None:
    import torch  # noqa: PLC0415 (it is imported already, since this is a tensor of it)

    if value.layout is not torch.strided or value.is_complex() or value.is_quantized:
        return None
    size = value.numel() * value.element_size()
    if size > _MAX_BYTES:
        return _Array(shape, dtype, bytes, list, size)
    flat = value.detach().cpu().contiguous().reshape(-1)
    return _Array(
        shape, dtype, lambda: flat.view(torch.uint8).numpy().tobytes(), lambda: flat.to(torch.float64).numpy(), size
    )


def _tensor_facts(kind: str, name: str, array: _Array, step: int) -> dict[str, object]:
    values = array.values()
    facts: dict[str, object] = {"kind": kind, "name": name, "step": step, "shape": list(array.shape)}
    facts |= {"dtype": array.dtype, "sha256": hashlib.sha256(array.content()).hexdigest(), **_statistics(values)}
    rows = _largest(values, array.shape) if kind == "output" else None
    return {**facts, **({"top1": rows} if rows else {})}


def _statistics(values: Any) -> dict[str, object]:
    import numpy as np  # noqa: PLC0415

    finite = np.isfinite(values)
    sound = values if finite.all() else values[finite]
    chosen = values[_indices(len(values))].tolist()
    return {
        "l2_norm": float(np.linalg.norm(sound)),
        "max_abs": float(np.abs(sound).max()) if len(sound) else None,
        "non_finite": int(len(values) - len(sound)),
        "sampled_values": [v if math.isfinite(v) else None for v in chosen],
    }


def _indices(count: int) -> list[int]:
    """Of elements evenly spread over that many, the first among them; all of few."""
    return list(range(count)) if count <= _SAMPLED else [index * count // _SAMPLED for index in range(_SAMPLED)]


def _largest(values: Any, shape: tuple[int, ...]) -> list[int] | None:
    """Where the largest element is, along the last axis, of the first rows; None of vectors and single columns."""
    if len(shape) < 2 or shape[-1] < 2 or not len(values):  # noqa: PLR2004 (a row of several elements)
        return None
    return [int(row.argmax()) for row in values.reshape(-1, shape[-1])[:_ROWS]]


def _weights(weights: Mapping[str, Any]) -> dict[str, object] | None:
    """All parameters, in order of their names, as one tensor; None where they are too many to read back."""
    if sum(math.prod(w.shape) for w in weights.values()) > _MAX_BYTES:  # of a byte each at least
        return None
    arrays = [array_of(weights[name]) for name in sorted(weights)]
    if not arrays or any(a is None for a in arrays) or sum(a.nbytes for a in arrays if a) > _MAX_BYTES:
        return None
    import numpy as np  # noqa: PLC0415

    read = [array for array in arrays if array is not None]
    digest = hashlib.sha256()
    for array in read:
        digest.update(array.content())
    values = np.concatenate([array.values() for array in read])
    dtypes = sorted({array.dtype for array in read})
    return {
        "kind": "weights",
        "name": "parameters",
        "step": 0,
        "shape": [len(values)],
        "dtype": ", ".join(dtypes),
        "sha256": digest.hexdigest(),
        **_statistics(values),
    }


def _save(out: Path, name: str, array: _Array) -> None:
    """Writes its elements, in float64, which holds all that a narrower type does."""
    import numpy as np  # noqa: PLC0415

    buffer = io.BytesIO()
    np.save(buffer, array.values().reshape(array.shape), allow_pickle=False)
    put(out / _FOLDER / f"{_file_name(name)}.npy", buffer.getvalue())


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def distances(reference: Path, other: Path) -> list[dict[str, object]]:
    """How far each output that both runs saved is from the reference's; RunnerError where there is none."""
    theirs = {t["name"]: t for t in _outputs(reference)}
    rows = []
    for tensor in _outputs(other):
        name = str(tensor["name"])
        files = [folder / _FOLDER / f"{_file_name(name)}.npy" for folder in (reference, other)]
        if name in theirs and all(file.is_file() for file in files):
            rows.append(
                {
                    "name": name,
                    "reference": reference.name,
                    "reference_sha256": theirs[name].get("sha256"),
                    **_distance(*files),
                }
            )
    if not rows:
        raise RunnerError(
            f"{reference} and {other} have no output in common that was saved: run both with --outputs save"
        )
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def _outputs(folder: Path) -> list[dict[str, Any]]:
    tensors = read_json(folder / RUN).get("tensors")
    return (
        [t for t in tensors if isinstance(t, dict) and t.get("kind") == "output"] if isinstance(tensors, list) else []
    )


def _distance(reference: Path, other: Path) -> dict[str, object]:
    try:
        import numpy as np  # noqa: PLC0415

        ours, theirs = (np.load(path, allow_pickle=False) for path in (reference, other))
    except ImportError as error:
        raise RunnerError("numpy is not installed: pip install numpy") from error
    except (OSError, ValueError) as error:
        raise RunnerError(f"the outputs cannot be read: {error}") from error
    if ours.shape != theirs.shape:
        raise RunnerError(f"{other} is of shape {theirs.shape}, {reference} of {ours.shape}")
    rows = [_largest(each.reshape(-1), ours.shape) for each in (ours, theirs)]
    finite = np.isfinite(ours) & np.isfinite(theirs)
    one, two = ours[finite], theirs[finite]
    norms = float(np.linalg.norm(one)), float(np.linalg.norm(two))
    return {
        "max_abs_difference": float(np.abs(two - one).max()) if len(one) else None,
        "relative_l2": float(np.linalg.norm(two - one)) / norms[0] if norms[0] else None,
        "cosine": float(one @ two) / (norms[0] * norms[1]) if norms[0] and norms[1] else None,
        "top1_agreement": sum(a == b for a, b in zip(*rows, strict=True)) / len(rows[0])
        if rows[0] and rows[1]
        else None,
    }


def _parser() -> argparse.ArgumentParser:
    parser = Parser("outputs", description="Compares outputs that two runs saved.")
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("distances", help="writes into OTHER's run.json how far its outputs are from REFERENCE's")
    one.add_argument("reference", type=Path, help="folder of the run that counts as right")
    one.add_argument("other", type=Path, help="folder of the run that is measured")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0, or 2 after a sentence on stderr."""
    args = _parser().parse_args(arguments)
    return exit_status("outputs", lambda: _write_distances(args.reference, args.other))


def _write_distances(reference: Path, other: Path) -> int:
    rows = distances(reference, other)
    facts = read_json(other / RUN)
    before = facts.get("output_distances")
    kept = [row for row in before if row.get("reference") != reference.name] if isinstance(before, list) else []
    put_json(other / RUN, {**facts, "output_distances": [*kept, *rows]})
    for row in rows:
        shown = {key: value for key, value in row.items() if key != "reference_sha256"}
        print(", ".join(f"{k} {v:.3g}" if isinstance(v, float) else str(v) for k, v in shown.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

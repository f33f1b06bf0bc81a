"""A trained policy as a folder that runs without Weft: ``run.export(folder)``, ``weft export RUN``.

    policy.py        the loader: NumPy only, or JAX, as the caller likes
    policy.json      what comes in, what is remembered, what goes out; which formats there are
    weights.npz      weights, the observation normaliser's too, and the memory that an episode begins with
    greedy.json      numpy: the likeliest action, as a list of operations; sample.json draws one
    greedy.stablehlo stablehlo: the same for JAX; sample.stablehlo
    manifest.json    which run, versions, the checks that it passed, a SHA-256 of each file
    README.md        how to use it

An export is compared with the run's policy, on observations drawn at random and on played ones, before it is put where
it was asked for.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Any

import numpy as np

from weft.core.errors import ConfigError, MissingExtra, RunError, UnknownName
from weft.core.specs import describe
from weft.runtimes.policies import exported
from weft.runtimes.policies.export_program import CannotBeProgram, as_program
from weft.runtimes.policies.export_trace import Traced, carry_of, described, modes_of, trace
from weft.runtimes.policies.policy import Policy

FORMATS = ("numpy", "stablehlo")
VERSION = 1
OPTIONAL = {"stablehlo": "flatbuffers"}
"""The package that writing a format needs, besides what Weft has."""


def formats_of(asked: Sequence[str]) -> list[str]:
    """The formats that were asked for; unless any were, all that can be written here."""
    for name in asked:
        if name not in FORMATS:
            raise UnknownName("format", name, FORMATS)
        if name in OPTIONAL and util.find_spec(OPTIONAL[name]) is None:
            raise MissingExtra(f"exporting as {name}", OPTIONAL[name], "export")
    return list(asked) or [n for n in FORMATS if n not in OPTIONAL or util.find_spec(OPTIONAL[n]) is not None]


def export_policy(
    policy: Policy,
    folder: Path,
    asked: Sequence[str],
    told: dict[str, Any],
    check: Callable[[Path, Sequence[str]], dict[str, Any]],
) -> dict[str, Any]:
    """Write ``folder``, check it by ``check(folder, formats)``, and return its manifest; blocks.

    ``told`` is what the manifest says of the run. An export that is there is replaced; any other folder is refused.
    """
    formats = formats_of(asked)
    _check_free(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as room:
        made = Path(room) / folder.name
        made.mkdir()
        traces = {mode: trace(policy, mode) for mode in modes_of(policy)}
        left_out = _write(policy, made, traces, formats, asked)
        missing = [name for name in FORMATS if name not in formats and not asked]
        left_out |= {name: str(MissingExtra("it", OPTIONAL[name], "export")) for name in missing}
        kept = [name for name in formats if name not in left_out]
        checks = check(made, kept)
        manifest = _manifest(policy, made, told, kept, left_out, checks)
        (made / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
        if folder.exists():
            shutil.rmtree(folder)
        made.replace(folder)
    return manifest


def _check_free(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; an export is a folder. Choose another name.")
    ours = (folder / "policy.json").is_file() and (folder / "manifest.json").is_file()
    if folder.is_dir() and any(folder.iterdir()) and not ours:
        raise ConfigError(f"{folder} is there, not empty, and no export: choose another folder, or remove it first")


def _write(
    policy: Policy, folder: Path, traces: dict[str, Traced], formats: Sequence[str], asked: Sequence[str]
) -> dict[str, str]:
    """Every file but the manifest; gives the formats that were not asked for by name and cannot be, with the reason."""
    left_out: dict[str, str] = {}
    description: dict[str, Any] = {"version": VERSION, **described(policy), "carry": list(carry_of(policy))}
    description["modes"] = {mode: list(traced.weights) for mode, traced in traces.items()}
    description["rows"] = "any" if all(t.any_batch for t in traces.values()) else 1
    for name in formats:
        try:
            WRITERS[name](folder, traces)
        except CannotBeProgram as error:
            if name in asked:
                raise
            left_out[name] = str(error)
    kept = [name for name in formats if name not in left_out]
    if not kept:
        raise ConfigError("; ".join(left_out.values()))
    description["formats"] = kept
    arrays = carry_of(policy) | {name: x for traced in traces.values() for name, x in traced.weights.items()}
    np.savez(folder / "weights.npz", **{name: _stored(x) for name, x in arrays.items()})  # type: ignore[arg-type]
    (folder / "policy.json").write_text(json.dumps(description, indent=1) + "\n")
    (folder / "policy.py").write_text(loader_source())
    (folder / "README.md").write_text(_readme(policy, description))
    return left_out


def _stored(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """As NumPy alone can read it: what only JAX has (bfloat16) as float32."""
    return array if array.dtype.kind in "biufc" else array.astype(np.float32)


def _numpy(folder: Path, traces: dict[str, Traced]) -> None:
    programs = {mode: as_program(traced) for mode, traced in traces.items()}
    for mode, program in programs.items():
        (folder / f"{mode}.json").write_text(json.dumps(program) + "\n")


def _stablehlo(folder: Path, traces: dict[str, Traced]) -> None:
    import jax
    from jax import export

    for mode, traced in traces.items():
        made = export.export(jax.jit(traced.call), platforms=["cpu", "cuda"])(*traced.schema)
        (folder / f"{mode}.stablehlo").write_bytes(made.serialize())


WRITERS = {"numpy": _numpy, "stablehlo": _stablehlo}


def loader_source() -> str:
    """``policy.py``: the NumPy primitives and the loader as one file that imports NumPy alone."""
    files = [Path(str(exported.__file__)).parent / name for name in ("loader.py", "primitives.py")]
    loader, primitives = (file.read_text() for file in files)
    head, _, rest = loader.partition("from __future__ import annotations\n")
    rest = re.sub(r"from weft\.\S+ import KNOWN\n", "", rest)
    imports, _, code = rest.partition("\n\nclass Program")
    added = primitives.partition("import numpy as np\n")[2]
    imports = imports.replace("import Sequence", "import Callable, Sequence").replace(
        "from pathlib", "from math import prod\nfrom pathlib"
    )
    return f"{head}from __future__ import annotations\n{imports.rstrip()}\n{added.rstrip()}\n\n\nclass Program{code}"


def _manifest(
    policy: Policy,
    folder: Path,
    told: dict[str, Any],
    formats: list[str],
    left_out: dict[str, str],
    checks: dict[str, Any],
) -> dict[str, Any]:
    spec = policy.algorithm.spec.environment
    packages = ("jax", "jaxlib", "flax", "numpy")
    versions = {name: metadata.version(name) for name in packages if util.find_spec(name) is not None}
    versions |= {"weft": import_module("weft").__version__, "python": platform.python_version()}
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return {
        "version": VERSION,
        **told,
        "environment": spec.name,
        "observations": describe(spec.observation),
        "actions": describe(spec.native_action),
        "formats": formats,
        "left_out": left_out,
        "checks": checks,
        "versions": versions,
        "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }


def check_sums(folder: Path) -> None:
    """Raise RunError where a file of an export is not the one that was written."""
    wanted: dict[str, str] = json.loads((folder / "manifest.json").read_text())["sha256"]
    for name, digest in wanted.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise RunError(f"{folder / name} is not the file that was exported: export the run again")


def _readme(policy: Policy, description: dict[str, Any]) -> str:
    spec = policy.algorithm.spec.environment
    needs = {"numpy": "numpy", "stablehlo": "jax flatbuffers"}
    rows = "\n".join(f'| `Policy(format="{n}")` | `pip install {needs[n]}` |' for n in description["formats"])
    memory = "It has a memory: call `policy.reset()` before each episode.\n" if description["carry"] else ""
    masks = f"It takes masks of {description['mask']} choices.\n" if description["mask"] is not None else ""
    return f"""# A policy for {spec.name}

Trained with Weft, which it does not need. Observations are {describe(spec.observation)}; actions are
{describe(spec.native_action)}, in the environment's own units. {memory}{masks}
```python
from policy import Policy

policy = Policy()
action = policy(observation)                 # the likeliest; for a batch, one more axis in front
action = policy(observation, greedy=False)   # one that is drawn
```

| loader | needs |
|---|---|
{rows}

`manifest.json` says which run it is of, how it was checked, and the SHA-256 of each file.
"""

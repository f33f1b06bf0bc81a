"""Checkpoints: every value comes back bit for bit, every damage is noticed, and none is ever the last."""

from __future__ import annotations

import math
import os
import random
import resource
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from weft.core.errors import CheckpointError, CorruptCheckpoint
from weft.services.checkpoints import Retention, latest, load, load_latest, params_sha256, prune, save, step_of


class State(NamedTuple):
    params: dict[str, Any]
    count: Any
    nothing: None
    pair: tuple[Any, Any]


def make_state() -> State:
    return State(
        params={
            "w": jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3),
            "b": jnp.array([np.nan, -0.0, 1e-45], jnp.float32),
        },
        count=jnp.int32(7),
        nothing=None,
        pair=(jax.random.split(jax.random.key(3), 4), jax.random.key(1, impl="rbg")),
    )


def flat(tree: Any) -> list[bytes]:
    keyless = jax.tree.map(
        lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x, tree
    )
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(keyless)]


def warn_never(message: str) -> None:
    raise AssertionError(f"unexpected warning: {message}")


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    tree = {"a": np.arange(5, dtype=np.int16), "b": np.float32(2.5)}
    return save(tmp_path, 1, tree, {"note": "x"}), tree


def test_a_tree_of_jax_arrays_comes_back_bit_for_bit(tmp_path: Path) -> None:
    state = make_state()
    path = save(tmp_path / "checkpoints", 1234, state, {"env_steps": 1234, "window": [[1, 2.5]], "none": None})
    assert path.name == "000000001234.weft"
    tree, document = load(path, state)
    assert document == {"env_steps": 1234, "window": [[1, 2.5]], "none": None}
    assert jax.tree.structure(tree) == jax.tree.structure(state)
    assert flat(tree) == flat(state)
    for got, expected in zip(jax.tree.leaves(tree), jax.tree.leaves(state), strict=True):
        assert isinstance(got, jax.Array)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    # The keys draw what they would have drawn.
    assert np.array_equal(jax.random.normal(tree.pair[1], (3,)), jax.random.normal(state.pair[1], (3,)))


def test_shapes_alone_are_template_enough(tmp_path: Path) -> None:
    state = make_state()
    path = save(tmp_path, 0, state, {})
    tree, _ = load(path, jax.eval_shape(lambda: make_state()))
    assert flat(tree) == flat(state)
    assert isinstance(tree.count, jax.Array)


def test_a_donated_template_still_serves_and_what_is_loaded_can_be_donated(tmp_path: Path) -> None:
    state = {"x": jnp.arange(1000.0)}
    path = save(tmp_path, 0, state, {})
    step = jax.jit(lambda s: {"x": s["x"] + 1}, donate_argnums=0)
    step(state)
    state["x"].delete()  # as donation has done already, unless this JAX keeps what a constant made
    loaded, _ = load(path, state)
    assert np.array_equal(step(loaded)["x"], np.arange(1000.0) + 1)
    again, _ = load(path, state)
    assert np.array_equal(again["x"], np.arange(1000.0))


def test_arrays_go_back_to_the_device_that_was_chosen_for_them_and_only_those(tmp_path: Path) -> None:
    device = jax.devices()[0]
    state = {"chosen": jax.device_put(jnp.arange(3), device), "free": jnp.arange(3), "key": jax.random.key(0)}
    tree, _ = load(save(tmp_path, 0, state, {}), state)
    assert {name: leaf.committed for name, leaf in tree.items()} == {"chosen": True, "free": False, "key": False}
    assert tree["chosen"].sharding == state["chosen"].sharding


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.int4,
    ],
)
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 2)])
def test_numpy_arrays_of_every_dtype_stay_numpy(tmp_path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    array = (np.arange(math.prod(shape)) % 2).reshape(shape).astype(dtype)
    tree, _ = load(save(tmp_path, 0, {"x": array}, {}), {"x": np.ones_like(array)})
    assert type(tree["x"]) is np.ndarray
    assert (tree["x"].dtype, tree["x"].shape, tree["x"].tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert tree["x"].flags.writeable


def test_views_big_endian_and_python_numbers(tmp_path: Path) -> None:
    tree = {
        "strided": np.arange(24).reshape(4, 6)[::2, ::-1],
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(3, dtype=">i4"),
        "scalars": [True, 3, 2.5, np.float32(1.5)],
    }
    got, _ = load(save(tmp_path, 0, tree, {}), tree)
    for name in ("strided", "fortran", "big"):
        assert np.array_equal(got[name], tree[name])
    assert got["scalars"] == tree["scalars"]
    assert [type(x) for x in got["scalars"]] == [bool, int, float, np.float32]


def test_the_files_layout_is_as_documented(tmp_path: Path) -> None:
    import hashlib
    import json

    raw = save(tmp_path, 5, {"b": np.arange(3, dtype="<u2"), "a": np.float64(1)}, {"k": 1}).read_bytes()
    magic, version, length = struct.unpack_from("<8sIQ", raw)
    assert (magic, version) == (b"WEFTCKPT", 1)
    header = json.loads(raw[20 : 20 + length])
    assert header["step"] == 5
    assert header["document"] == {"k": 1}
    assert [(a["path"], a["dtype"], a["shape"]) for a in header["arrays"]] == [
        ("['a']", "float64", []),
        ("['b']", "uint16", [3]),
    ]
    start = -(-(20 + length) // 64) * 64
    entry = header["arrays"][1]
    at = start + entry["offset"]
    assert raw[at : at + entry["nbytes"]] == np.arange(3, dtype="<u2").tobytes()
    assert raw[-32:] == hashlib.sha256(raw[:-32]).digest()


def test_every_flipped_byte_is_detected(small: tuple[Path, dict[str, Any]]) -> None:
    path, template = small
    whole = path.read_bytes()
    chance = random.Random(0)
    places = list(range(len(whole))) + [chance.randrange(len(whole)) for _ in range(1000)]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= chance.randrange(1, 256)
        path.write_bytes(damaged)
        with pytest.raises(CorruptCheckpoint, match=str(path)):
            load(path, template)
    path.write_bytes(whole)
    assert load(path, template)[1] == {"note": "x"}


def test_every_truncation_and_every_addition_is_detected(small: tuple[Path, dict[str, Any]]) -> None:
    path, template = small
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptCheckpoint):
            load(path, template)
    for extra in (b"\0", whole[-32:], whole):
        path.write_bytes(whole + extra)
        with pytest.raises(CorruptCheckpoint):
            load(path, template)


def test_damage_is_found_before_any_array_is_made(small: tuple[Path, dict[str, Any]], monkeypatch: Any) -> None:
    path, template = small
    raw = bytearray(path.read_bytes())
    raw[-40] ^= 1
    path.write_bytes(raw)
    monkeypatch.setattr(np, "empty", lambda *_: pytest.fail("an array was made"))
    with pytest.raises(CorruptCheckpoint):
        load(path, template)


def with_header(path: Path, change: Any, version: int = 1) -> None:
    """Rewrite a file's header, with a checksum that is right again: a hostile file."""
    import hashlib

    import msgspec

    raw = path.read_bytes()
    length = struct.unpack_from("<8sIQ", raw)[2]
    header = change(msgspec.json.decode(raw[20 : 20 + length]))
    arrays = raw[-(-(20 + length) // 64) * 64 : -32]
    encoded = header if isinstance(header, bytes) else msgspec.json.encode(header)
    body = struct.pack("<8sIQ", b"WEFTCKPT", version, len(encoded)) + encoded
    body += bytes(-len(body) % 64) + arrays
    path.write_bytes(body + hashlib.sha256(body).digest())


@pytest.mark.parametrize(
    "change", [{"offset": 2**40}, {"offset": -(2**40)}, {"nbytes": 2**50}, {"shape": [2**40]}, {"shape": "x"}]
)
def test_a_header_that_lies_is_refused_without_allocating(
    small: tuple[Path, dict[str, Any]], change: dict[str, Any]
) -> None:
    path, template = small

    def lie(header: dict[str, Any]) -> dict[str, Any]:
        header["arrays"][0].update(change)
        return header

    with_header(path, lie)
    with pytest.raises(CheckpointError, match=str(path)):
        load(path, template)


def test_a_header_that_is_no_json_or_of_another_version(small: tuple[Path, dict[str, Any]]) -> None:
    path, template = small
    with_header(path, lambda header: header, version=2)
    with pytest.raises(CheckpointError, match="version 2, and this Weft reads version 1"):
        load(path, template)
    with_header(path, lambda _: b"\xff{")
    with pytest.raises(CheckpointError, match="header"):
        load(path, template)


def test_a_newer_version_is_not_passed_over_as_if_it_were_damage(tmp_path: Path) -> None:
    tree = {"x": np.zeros(2)}
    save(tmp_path, 1, tree, {})
    with_header(save(tmp_path, 2, tree, {}), lambda header: header, version=2)
    with pytest.raises(CheckpointError, match="version 2"):
        load_latest(tmp_path, tree, warn_never)


def test_a_template_that_does_not_fit_is_named_with_both_shapes(tmp_path: Path) -> None:
    path = save(tmp_path, 0, {"w": np.zeros((3, 4), np.float32), "old": np.zeros(1), "i": np.zeros(2, np.int32)}, {})
    template = {"w": np.zeros((5, 4), np.float32), "new": np.zeros(1), "i": np.zeros(2, np.int64)}
    with pytest.raises(CheckpointError) as caught:
        load(path, template)
    message = str(caught.value)
    assert "['w']: the checkpoint has float32[3, 4], expected float32[5, 4]" in message
    assert "['new']: the checkpoint has none, expected float64[1]" in message
    assert "['old']: the checkpoint has float64[1], expected none" in message
    assert "['i']: the checkpoint has int32[2], expected int64[2]" in message
    assert not isinstance(caught.value, CorruptCheckpoint)


def test_keys_of_another_generator_do_not_fit(tmp_path: Path) -> None:
    path = save(tmp_path, 0, jax.random.key(0), {})
    with pytest.raises(CheckpointError, match=r"key<fry>\[\], expected key<rbg>\[\]"):
        load(path, jax.random.key(0, impl="rbg"))


@pytest.mark.parametrize("leaf", ["text", np.array([{}, None]), np.array(["a"]), np.zeros(2, "i4,f4"), 2**70])
def test_what_has_no_plain_bytes_is_refused_and_nothing_is_written(tmp_path: Path, leaf: Any) -> None:
    with pytest.raises(CheckpointError, match=r"at \['x'\].*cannot be saved"):
        save(tmp_path, 0, {"x": leaf}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"a": {"b": [1.0, math.nan]}}, r"document.a.b\[1\] is nan"),
        ({"best": -math.inf}, "document.best is -inf"),
        ({"a": {1: 2}}, "document.a has the key 1"),
        ({"a": np.float32(1)}, "document.a is a float32"),
        ({"a": b"x"}, "document.a is a bytes"),
    ],
)
def test_a_document_that_json_would_change_is_refused(tmp_path: Path, document: dict[str, Any], place: str) -> None:
    with pytest.raises(CheckpointError, match=place):
        save(tmp_path, 0, {}, document)


def test_a_document_keeps_every_digit(tmp_path: Path) -> None:
    chance = random.Random(1)
    floats = [struct.unpack("<d", chance.randbytes(8))[0] for _ in range(2000)]
    document = {
        "floats": [f for f in floats if math.isfinite(f)],
        "rng": 2**128 - 1,
        "negative": -(2**63),
        "text": "é\n\0",
    }
    assert load(save(tmp_path, 0, {}, document), {})[1] == document


def test_latest_goes_by_step_not_by_time(tmp_path: Path) -> None:
    tree = {"x": np.zeros(1)}
    for step in (30, 2, 10**13, 100):
        save(tmp_path, step, tree, {}, keep=Retention(9))
    os.utime(tmp_path / "000000000002.weft", (2**31, 2**31))
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    (tmp_path / "12.weft").write_text("nor this")
    assert [step_of(path) for path in latest(tmp_path)] == [10**13, 100, 30, 2]
    assert latest(tmp_path / "absent") == []
    loaded = load_latest(tmp_path, tree, warn_never)
    assert loaded is not None
    assert step_of(loaded[2]) == 10**13


def test_load_latest_of_an_empty_folder_is_none(tmp_path: Path) -> None:
    assert load_latest(tmp_path, {}, warn_never) is None
    assert load_latest(tmp_path / "absent", {}, warn_never) is None


def test_a_corrupt_newest_falls_back_and_says_so(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step, {"x": np.full(3, step)}, {"step": step})
    for step in (2, 3):
        path = tmp_path / f"{step:012d}.weft"
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 0x10
        path.write_bytes(raw)
    said: list[str] = []
    loaded = load_latest(tmp_path, {"x": np.zeros(3, np.int64)}, said.append)
    assert loaded is not None
    tree, document, path = loaded
    assert (tree["x"].tolist(), document, path.name) == ([1, 1, 1], {"step": 1}, "000000000001.weft")
    assert len(said) == 2
    assert "000000000003.weft is corrupt" in said[0]
    assert "000000000002.weft" in said[0].split("Trying")[1]


def test_all_corrupt_is_an_error_never_a_start_from_scratch(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path, step, {}, {}).write_bytes(b"")
    said: list[str] = []
    with pytest.raises(CheckpointError, match="none of the 2 checkpoints") as caught:
        load_latest(tmp_path, {}, said.append)
    assert "000000000001.weft" in str(caught.value)
    assert len(said) == 2


def test_a_misfit_newest_is_not_passed_over(tmp_path: Path) -> None:
    save(tmp_path, 1, {"x": np.zeros(1)}, {})
    save(tmp_path, 2, {"x": np.zeros(2)}, {})
    with pytest.raises(CheckpointError, match="does not fit"):
        load_latest(tmp_path, {"x": np.zeros(1)}, warn_never)


def test_saving_keeps_the_newest_and_clears_what_killed_saves_left(tmp_path: Path) -> None:
    (tmp_path / ".000000000000.weft.tmp").write_bytes(b"half")
    for step in range(6):
        save(tmp_path, step, {}, {}, keep=Retention(2))
    assert sorted(os.listdir(tmp_path)) == ["000000000004.weft", "000000000005.weft"]


def test_the_one_just_saved_stays_though_a_corrupt_one_has_a_higher_step(tmp_path: Path) -> None:
    """After falling back from step 200 to 100, the save at 150 must not be pruned in favour of the corrupt 200."""
    save(tmp_path, 200, {}, {}).write_bytes(b"corrupt")
    path = save(tmp_path, 150, {}, {}, keep=Retention(1))
    assert path in latest(tmp_path)


def test_prune_never_removes_the_only_good_one(tmp_path: Path) -> None:
    for step in range(5):
        save(tmp_path, step, {}, {"step": step}, keep=Retention(9))
    for step in (2, 3, 4):
        (tmp_path / f"{step:012d}.weft").write_bytes(b"corrupt")
    removed = prune(tmp_path, keep=Retention(1))
    assert [step_of(path) for path in latest(tmp_path)] == [4, 1]
    assert [step_of(path) for path in removed] == [3, 2, 0]
    (tmp_path / "000000000001.weft").write_bytes(b"corrupt")
    assert prune(tmp_path, keep=Retention(1)) == []
    assert len(latest(tmp_path)) == 2


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    save(tmp_path, 7, {"x": np.zeros(1)}, {"n": 1})
    path = save(tmp_path, 7, {"x": np.zeros(1)}, {"n": 2})
    assert load(path, {"x": np.zeros(1)})[1] == {"n": 2}
    assert len(latest(tmp_path)) == 1


def test_a_full_disk_is_said_and_the_one_before_stays(tmp_path: Path) -> None:
    tree = {"x": np.zeros(100_000)}
    save(tmp_path, 1, {"x": np.ones(1)}, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))  # the kernel then refuses as on a full disk
    try:
        with pytest.raises(CheckpointError, match=r"000000000002\.weft: File too large"):
            save(tmp_path, 2, tree, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["000000000001.weft"]
    save(tmp_path, 2, tree, {})  # space again: saving recovers
    assert step_of(latest(tmp_path)[0]) == 2


def test_a_read_only_folder_is_said(read_only_folder: Path) -> None:
    for place in (read_only_folder, read_only_folder / "checkpoints"):
        with pytest.raises(CheckpointError, match=f"cannot save checkpoint {place}.*Permission denied"):
            save(place, 1, {}, {})


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No such file"):
        load(tmp_path / "000000000001.weft", {})


def test_params_sha256_covers_path_dtype_shape_and_bytes_but_not_order() -> None:
    base = {"a": np.arange(6, dtype=np.float32), "b": {"c": np.zeros(2), "d": np.ones(2)}}
    same = OrderedDict([("b", {"d": jnp.ones(2, jnp.float32), "c": jnp.zeros(2, jnp.float32)}), ("a", jnp.arange(6.0))])
    as_float32 = jax.tree.map(lambda x: x.astype(np.float32), base)
    assert params_sha256(as_float32) == params_sha256(same)
    assert len(params_sha256({})) == 64
    others = [
        base,
        as_float32,
        {**base, "a": base["a"].reshape(2, 3)},
        {**base, "a": base["a"].view(np.int32)},
        {**base, "a": -base["a"]},
        {"a": base["a"], "b": {"c": np.ones(2), "d": np.zeros(2)}},
        {"x": base["a"], "b": base["b"]},
        {"a": base["a"]},
        {},
    ]
    assert len({params_sha256(tree) for tree in others}) == len(others)

"""The kernels for convolutions on a CPU, against XLA's convolutions; and how they come to be there, or not."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from weft.core.specs import Box
from weft.nets.actor_critic import actor_critic
from weft.nets.native import library, own_files
from weft.nets.native.convolution import Layer, Shape, convolutions, fits, takes

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="the kernels are for CPUs")
NATURE = Layer(32, 8, 4), Layer(64, 4, 2), Layer(64, 3, 1)
SMALL = Layer(16, 3, 1), Layer(32, 3, 2)


def made(shape, count, seed=0):
    """Images, and weights of every layer."""
    random = np.random.default_rng(seed)
    channels, weights = shape.image[2], []
    for layer in shape.layers:
        kernel = random.normal(size=(layer.size, layer.size, channels, layer.features))
        kernel = kernel / np.sqrt(layer.size**2 * channels)
        weights.append((np.float32(kernel), np.float32(0.1 * random.normal(size=layer.features))))
        channels = layer.features
    height, width, planes = shape.image
    each = (planes, height, width) if shape.planes else shape.image
    return random.integers(0, 256, (count, *each), np.uint8), tuple(weights)


def by_xla(shape, images, weights):
    x = jnp.asarray(images, jnp.float32) / 255
    x = jnp.moveaxis(x, 1, -1) if shape.planes else x
    for layer, (kernel, bias) in zip(shape.layers, weights, strict=True):
        strides = layer.stride, layer.stride
        x = jax.lax.conv_general_dilated(x, kernel, strides, "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + bias)
    return x.reshape((x.shape[0], -1))


def test_they_are_there():
    """Where this fails for want of a compiler, every other test here would try nothing."""
    assert library.trouble() == ""
    assert library.available()


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        (Shape((84, 84, 4), NATURE, planes=True), 5),
        (Shape((84, 84, 4), NATURE), 1),
        (Shape((37, 45, 3), NATURE, planes=True), 37),  # rows and columns are left over at the ends
        (Shape((10, 10, 6), SMALL), 70),  # the stride does not divide the size
        (Shape((23, 17, 1), (Layer(16, 5, 3), Layer(48, 4, 3))), 9),  # no patch has some of the inputs
        (Shape((7, 7, 2), (Layer(32, 7, 1),)), 3),
    ],
    ids=str,
)
def test_values_and_gradients_are_those_of_the_layers(shape, count):
    assert fits(shape)
    images, weights = made(shape, count)

    def loss(compute):
        def of(weights):
            out = compute(shape, images, weights)
            return jnp.sin(3 * out).sum(), out

        return jax.jit(jax.value_and_grad(of, has_aux=True))(weights)

    ((found, out), slopes), ((wanted, expected), right) = loss(convolutions), loss(by_xla)
    np.testing.assert_allclose(out, expected, atol=2e-6)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    for one, other in zip(jax.tree.leaves(slopes), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5 * (1 + np.abs(other).max()))


def test_what_an_image_gives_does_not_depend_on_the_others():
    shape = Shape((84, 84, 4), NATURE, planes=True)
    images, weights = made(shape, 11)
    run = jax.jit(partial(convolutions, shape))
    whole = np.asarray(run(images, weights))
    for few in (1, 2, 7):
        np.testing.assert_array_equal(run(images[:few], weights), whole[:few])


def test_the_number_of_threads_changes_no_bit():
    code = """if True:
        import hashlib, os, sys
        os.sched_setaffinity(0, list(os.sched_getaffinity(0))[: int(sys.argv[1])])
        os.environ["NPROC"] = sys.argv[1]
        import jax
        import numpy as np
        from test_native_kernels import NATURE, Shape, convolutions, made
        shape = Shape((84, 84, 4), NATURE)
        images, weights = made(shape, 30)
        def both(weights):
            out, back = jax.vjp(lambda weights: convolutions(shape, images, weights), weights)
            return out, back(jax.numpy.ones_like(out))
        out = jax.jit(both)(weights)
        print(hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(out))).hexdigest())
    """
    here = Path(__file__).parent
    told = {
        subprocess.run([sys.executable, "-c", code, str(n)], cwd=here, check=True, capture_output=True).stdout
        for n in (1, 2)
    }
    assert len(told) == 1


def test_members_of_a_population_have_weights_of_their_own():
    shape = Shape((10, 10, 2), SMALL)
    images, _ = made(shape, 3)
    several = [made(shape, 1, seed)[1] for seed in range(2)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *several)
    slope = jax.grad(lambda weights: (convolutions(shape, images, weights) ** 2).sum())
    for found, one in zip(range(2), several, strict=True):
        mapped = jax.tree.map(lambda x, k=found: x[k], jax.vmap(slope)(stacked))
        jax.tree.map(np.testing.assert_array_equal, mapped, slope(one))


def test_replicas_on_devices_of_one_process():
    shape = Shape((10, 10, 2), SMALL)
    images, weights = made(shape, 8)
    mesh = Mesh(np.array(jax.devices()[:2]), ("replica",))
    split, shared = PartitionSpec("replica"), PartitionSpec()

    def slope(images, weights):
        found = jax.grad(lambda weights: (convolutions(shape, images, weights) ** 2).sum())(weights)
        return jax.lax.psum(found, "replica")

    both = jax.jit(jax.shard_map(slope, mesh=mesh, in_specs=(split, shared), out_specs=shared, check_vma=False))
    alone = jax.grad(lambda weights: (convolutions(shape, images, weights) ** 2).sum())(weights)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4), both(images, weights), alone)


def test_layers_that_do_not_fill_vectors_are_left_to_xla():
    assert not fits(Shape((10, 10, 2), (Layer(5, 3, 1),)))


@pytest.mark.parametrize("image", [(10, 2, 2), (2, 10, 2), (1, 1, 2)], ids=str)
def test_images_that_are_smaller_than_a_filter_are_left_to_xla(image):
    assert not fits(Shape(image, (Layer(16, 3, 1),)))


def test_a_layer_with_nothing_to_see_is_left_to_xla():
    assert not fits(Shape((9, 9, 2), (Layer(16, 7, 1), Layer(16, 5, 1), Layer(16, 1, 1))))


def test_what_is_not_a_number_stays_so():
    images, weights = made(Shape((10, 10, 2), SMALL), 3)
    weights[0][0][...] = np.nan
    out = convolutions(Shape((10, 10, 2), SMALL), images, weights)
    assert np.isnan(out).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda images, weights: (images.astype(np.float32), weights),
        lambda images, weights: (images[:, :9], weights),
        lambda images, weights: (images, jax.tree.map(jnp.bfloat16, weights)),
        lambda images, weights: (images, weights[::-1]),
    ],
    ids=["numbers", "size", "bfloat16", "order"],
)
def test_what_the_kernels_do_not_take_is_refused(change):
    shape = Shape((10, 10, 2), SMALL)
    images, weights = made(shape, 3)
    assert takes(shape, images, weights)
    images, weights = change(images, weights)
    assert not takes(shape, images, weights)
    with pytest.raises(TypeError, match="bytes and float32"):
        convolutions(shape, images, weights)


def test_a_network_takes_images_in_other_numbers_all_the_same():
    net = actor_critic(Box((10, 10, 2), "uint8", 0, 255), 3)
    params, (images, _) = net.init(jax.random.key(0)), made(Shape((10, 10, 2), SMALL), 4)
    for_bytes = net.batch(params, images)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4),
        for_bytes[:2],
        net.batch(params, images.astype(np.int32))[:2],
    )


def test_an_image_of_rows_and_columns_alone_goes_through_them(monkeypatch):
    net = actor_critic(Box((84, 84), "uint8", 0, 255), 3)
    params, (images, _) = net.init(jax.random.key(0)), made(Shape((84, 84, 1), NATURE), 4)

    def found():
        def of(params):
            out = net.batch(params, images[..., 0])
            return (out[0] ** 2).sum() + (out[1] ** 2).sum()

        traced = jax.jit(jax.value_and_grad(of)).trace(params)
        return str(traced.jaxpr), traced.lower().compile()(params)

    jaxpr, by_kernels = found()
    assert "weft_convolve_back" in jaxpr
    monkeypatch.setattr(library, "available", lambda: False)
    jaxpr, by_layers = found()
    assert "weft_convolve" not in jaxpr
    for one, other in zip(*(jax.tree.leaves(x) for x in (by_kernels, by_layers)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5 * (1 + np.abs(other).max()))


# ---- how the library comes to be there ------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A user's cache with nothing in it, and a process that has not looked for the kernels yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(jax.ffi, "register_ffi_target", lambda *args, **kwargs: None)  # this process has its kernels
    return tmp_path


def compiler(folder, body, version="echo mine 1.0"):
    """A program that is asked to compile; the last of its arguments is where to."""
    path = folder / "compiler"
    asked = f'[ "$last" = --version ] && {{ {version}; exit; }}'
    path.write_text(f"#!/bin/sh\nfor last; do :; done\n{asked}\n{body}\n")
    path.chmod(0o700)
    return str(path)


def compiled_already():
    return next(Path(os.environ["XDG_CACHE_HOME"]).glob("weft/kernels/*.so"))


def test_they_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("WEFT_NATIVE", "0")
    assert library.trouble.__wrapped__() == "WEFT_NATIVE=0"


def test_without_a_compiler_it_is_said_which_were_looked_for(fresh, monkeypatch):
    monkeypatch.setenv("PATH", str(fresh))
    assert library.trouble.__wrapped__().startswith("no C++ compiler (c++ or g++ or clang++); apt install g++")
    monkeypatch.setenv("CXX", "icc -fast")
    assert library.trouble.__wrapped__().startswith("no C++ compiler (icc); ")


def test_a_compiler_that_fails_is_quoted(fresh, monkeypatch):
    monkeypatch.setenv("CXX", compiler(fresh, "echo no such flag >&2; exit 1"))
    assert "failed: no such flag" in library.trouble.__wrapped__()
    assert not list(fresh.glob("cache/weft/kernels/*.so"))


def test_what_is_compiled_is_no_library(fresh, monkeypatch):
    monkeypatch.setenv("CXX", compiler(fresh, "echo nonsense > $last"))
    assert library.trouble.__wrapped__()


def test_of_several_processes_one_compiles(fresh, monkeypatch):
    said = fresh / "said"
    body = f"echo once >> {said}; sleep 0.3; cp {compiled_of_the_suite()} $last"
    environment = os.environ | {"CXX": compiler(fresh, body)}
    code = "from weft.nets.native import library; assert library.available(), library.trouble()"

    def start(_):
        return subprocess.run([sys.executable, "-c", code], env=environment, check=False, capture_output=True)

    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(start, range(3)))
    assert [one.returncode for one in done] == [0, 0, 0], done
    assert said.read_text() == "once\n" * (len(library.SOURCES) + 1)  # each source, and then all of them are joined


def test_a_library_that_is_there_is_loaded_while_another_process_has_the_lock(fresh, monkeypatch):
    monkeypatch.setenv("CXX", compiler(fresh, f"cp {compiled_of_the_suite()} $last"))
    assert library.trouble.__wrapped__() == ""
    with lock_of_another() as folder, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(library.trouble.__wrapped__)
        try:
            assert waiting.result(timeout=20) == ""
        finally:
            os.close(folder)


def test_a_process_that_hangs_with_the_lock_is_not_waited_for_for_ever(fresh, monkeypatch):
    monkeypatch.setenv("CXX", compiler(fresh, f"cp {compiled_of_the_suite()} $last"))
    monkeypatch.setattr(library, "SECONDS", 1.0)
    with lock_of_another() as folder, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(library.trouble.__wrapped__)
        try:
            assert waiting.result(timeout=20) == ""
        finally:
            os.close(folder)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS], ids=errno.errorcode.get)
def test_where_files_cannot_be_locked_it_is_done_without(number, fresh, monkeypatch):
    def flock(*given):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(library.fcntl, "flock", flock)
    monkeypatch.setenv("CXX", compiler(fresh, f"cp {compiled_of_the_suite()} $last"))
    assert library.trouble.__wrapped__() == ""


@pytest.mark.parametrize("left", [0, 100, 0.5, 0.99], ids=str)
def test_a_file_that_is_broken_is_made_again(left, fresh, monkeypatch):
    whole = Path(compiled_of_the_suite()).read_bytes()
    monkeypatch.setenv("CXX", compiler(fresh, f"cp {compiled_of_the_suite()} $last"))
    assert library.trouble.__wrapped__() == ""
    path = compiled_already()
    path.unlink()  # this process has loaded it
    path.write_bytes(whole[: left if isinstance(left, int) else int(left * len(whole))])
    path.chmod(0o600)
    code = "from weft.nets.native import library; assert library.available(), library.trouble()"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert path.read_bytes() == whole


def test_what_cannot_be_loaded_as_it_is_made_is_not_made_again_each_time(fresh, monkeypatch):
    said = fresh / "said"
    monkeypatch.setenv("CXX", compiler(fresh, f"echo once >> {said}; echo nonsense > $last"))
    for _ in range(3):
        assert "is no library" in library.trouble.__wrapped__()
    assert said.read_text() == "once\n" * (len(library.SOURCES) + 1)


def test_a_library_is_on_the_disk_before_its_name(fresh, monkeypatch):
    done = []

    def noting(name):
        real = getattr(os, name)

        def noted(*given):
            what = os.readlink(f"/proc/self/fd/{given[0]}") if name == "fsync" else str(given[1])
            done.append((name, Path(what).name))
            return real(*given)

        return noted

    for name in ("fsync", "replace"):
        monkeypatch.setattr(library.os, name, noting(name))
    monkeypatch.setenv("CXX", compiler(fresh, f"cp {compiled_of_the_suite()} $last"))
    assert library.trouble.__wrapped__() == ""
    assert done == [("fsync", "whole"), ("replace", compiled_already().name), ("fsync", "kernels")]


def test_a_compiler_in_quotes_that_do_not_end_is_quoted(fresh, monkeypatch):
    monkeypatch.setenv("CXX", "g++ '-O3")
    assert library.trouble.__wrapped__().startswith("CXX=g++ '-O3 is no command (No closing quotation)")


def test_what_a_compiler_says_need_not_be_text(fresh, monkeypatch):
    monkeypatch.setenv("CXX", compiler(fresh, r"printf '\377 no' >&2; exit 1", r"printf '\377'"))
    assert library.trouble.__wrapped__().endswith("failed: \N{REPLACEMENT CHARACTER} no")


def test_compilers_behind_one_wrapper_are_told_apart(fresh):
    version = f"cat {fresh / 'version'} 2>/dev/null || {{ echo never; exit 1; }}"
    wrapper = [compiler(fresh, "", version)]
    silent = library._identity(wrapper)
    (fresh / "version").write_text("g++ 12")
    twelve = library._identity(wrapper)
    (fresh / "version").write_text("g++ 13")
    assert len({silent, twelve, library._identity(wrapper)}) == 3
    assert library._version([str(fresh / "nothing")]) == library._version(["false"]) == ""


def test_what_was_not_used_for_long_is_removed_when_another_is_compiled(fresh, monkeypatch):
    folder = library.folder()
    folder.mkdir(mode=0o700, parents=True)
    days = {"read.so": (1, 90), "written.so": (90, 1), "old.so": (31, 31), "old.refused": (31, 31), "old.txt": (90, 90)}
    days |= {"tmpold": (2, 2), "tmpnew": (0, 0)}
    for name, ago in days.items():
        (folder / name).mkdir() if name.startswith("tmp") else (folder / name).touch()
        os.utime(folder / name, tuple(time.time() - 86_400 * one for one in ago))
    monkeypatch.setenv("CXX", compiler(fresh, f"cp -p {compiled_of_the_suite()} $last; touch -d '1 year ago' $last"))
    assert library.trouble.__wrapped__() == ""
    left = {path.name for path in folder.iterdir()}
    assert sorted(Path(name).suffix for name in left - set(days)) == ["", ".so"], "the lock, and what was compiled"
    assert left & set(days) == {"read.so", "written.so", "old.txt", "tmpnew"}


def test_code_that_others_could_have_written_is_not_loaded(fresh, monkeypatch):
    monkeypatch.setenv("CXX", compiler(fresh, f"cp {compiled_of_the_suite()} $last"))
    assert library.trouble.__wrapped__() == ""
    path = compiled_already()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o666)
    assert "is not this user's alone" in library.trouble.__wrapped__()
    path.chmod(0o600)
    path.parent.chmod(0o777)
    assert "is not this user's alone" in library.trouble.__wrapped__()


def closed_again(path, mode):
    """Load while ``path`` has this mode; what is said."""
    before = stat.S_IMODE(path.stat().st_mode)
    path.chmod(mode)
    try:
        return library.trouble.__wrapped__()
    finally:
        path.chmod(before)


def test_a_folder_that_others_could_exchange_is_not_loaded_from(fresh, monkeypatch):
    monkeypatch.setenv("CXX", compiler(fresh, f"cp {compiled_of_the_suite()} $last"))
    assert library.trouble.__wrapped__() == ""
    for on_the_way in (fresh / "cache" / "weft", fresh / "cache", fresh):
        assert f"{on_the_way} is not this user's alone" in closed_again(on_the_way, 0o777)
        assert closed_again(on_the_way, 0o1777) == "", "a sticky one, as /tmp is"
        assert closed_again(on_the_way, 0o775) == "", "of the user's own group"
    monkeypatch.setattr(os, "getegid", lambda: fresh.stat().st_gid + 1)
    assert f"{fresh} is not this user's alone" in closed_again(fresh, 0o775)
    assert library.trouble.__wrapped__() == ""


def test_a_link_is_followed_where_nobody_else_can_turn_it(fresh, monkeypatch):
    monkeypatch.setenv("CXX", compiler(fresh, f"cp {compiled_of_the_suite()} $last"))
    elsewhere, link = fresh / "elsewhere" / "cache", fresh / "cache"
    elsewhere.mkdir(parents=True)
    link.symlink_to("elsewhere/cache")
    assert library.trouble.__wrapped__() == ""
    assert list(elsewhere.glob("weft/kernels/*.so"))
    for place in (elsewhere, elsewhere.parent):
        assert f"{place} is not this user's alone" in closed_again(place, 0o777)
    if os.geteuid() == 0:
        os.lchown(link, 12345, -1)
        assert f"{link} is not this user's alone (user 12345's" in library.trouble.__wrapped__()


def test_what_was_looked_at_is_loaded_though_another_folder_is_put_in_its_place(fresh, monkeypatch):
    """As somebody could who can rename a folder on the way to it."""
    monkeypatch.setenv("CXX", compiler(fresh, f"cp {compiled_of_the_suite()} $last"))
    assert library.trouble.__wrapped__() == ""
    path, loaded = compiled_already(), []

    def loading(name):
        path.parent.rename(fresh / "aside")
        path.parent.mkdir()
        path.write_text("another's")
        loaded.append(Path(name).read_bytes())

    monkeypatch.setattr(library.ctypes, "CDLL", loading)
    own_files.load(path)
    assert loaded == [Path(compiled_of_the_suite()).read_bytes()]


def test_a_library_that_is_a_link_is_not_loaded(fresh, monkeypatch):
    monkeypatch.setenv("CXX", compiler(fresh, f"cp {compiled_of_the_suite()} $last"))
    assert library.trouble.__wrapped__() == ""
    path = compiled_already()
    path.rename(fresh / "other")
    path.symlink_to(fresh / "other")
    with pytest.raises(OSError, match="symbolic link"):
        own_files.load(path)


@contextmanager
def lock_of_another():
    """Another process's lock, as it seems; it goes when the descriptor is closed."""
    folder = library.folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield descriptor


def compiled_of_the_suite():
    """The library that this process has loaded."""
    assert library.available()
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(line.split()[-1] for line in lines if "/weft/kernels/" in line and not line.endswith(" (deleted)"))

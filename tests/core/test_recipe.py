"""Recipes: what can be told to another process comes back equal, and what cannot is refused with a reason."""

from __future__ import annotations

import enum
import functools
import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft.core import recipe
from weft.core.errors import ConfigError
from weft.core.recipe import from_recipe, import_script, script_path, to_recipe


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Point(NamedTuple):
    x: float
    y: tuple[int, ...] = ()


@dataclass(frozen=True)
class Inner:
    size: int = 3
    derived: int = field(init=False, default=7)


@dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    make: Any = None


class Nested:
    class Deep:
        def method(self) -> int:
            return 1

    @staticmethod
    def still() -> str:
        return "found"


def plain(a: int = 1, b: int = 2) -> int:
    return a + b


def there_and_back(thing: Any) -> Any:
    return from_recipe(json.loads(json.dumps(to_recipe(thing), allow_nan=False)))


@pytest.mark.parametrize(
    "thing",
    [
        None,
        True,
        7,
        -(2**62),
        0.1,
        float("inf"),
        float("-inf"),
        "text with \u2028 and \x00",
        (),
        (1, (2.5, None), "x"),
        [1, [2], (3,)],
        {},
        {"a": 1, "dict": {"list": [1], "name": "weft:PPO"}, "make": None},
        Colour.RED,
        Colour.PAIR,
        Point(1.5, (1, 2)),
        Inner(5),
        Outer(Inner(9), plain),
        plain,
        Nested.Deep,
        Nested.Deep.method,
        Nested.still,
        int,
        np.float32,
        weft.PPO,
    ],
    ids=lambda thing: re.sub(" at 0x[0-9a-f]+", "", repr(thing)),
)
def test_what_comes_back_is_equal_and_of_the_same_type(thing):
    back = there_and_back(thing)
    assert back == thing
    assert type(back) is type(thing)


def test_not_a_number_comes_back_as_such():
    assert np.isnan(there_and_back(float("nan")))


@pytest.mark.parametrize("array", [np.arange(6, dtype=np.int16).reshape(2, 3), np.zeros((0, 4)), np.array(2.5)])
def test_arrays_come_back_whole_and_writable(array):
    back = there_and_back(array)
    np.testing.assert_array_equal(back, array)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    if array.shape:
        back[...] = 0


def test_a_numpy_number_comes_back():
    assert there_and_back(np.float32(0.1)) == np.float32(0.1)


def test_what_is_not_laid_out_in_order_comes_back_in_order():
    array = np.arange(12).reshape(3, 4).T[::2]
    np.testing.assert_array_equal(there_and_back(array), array)


def test_a_partial_comes_back_callable():
    back = there_and_back(functools.partial(plain, 10, b=5))
    assert back() == 15


def test_algorithms_come_back_equal():
    for algorithm in (weft.PPO(hidden=(8, 4), recurrent="gru"), weft.IMPALA(unroll=5), weft.A2C()):
        assert there_and_back(algorithm) == algorithm


def test_fields_that_init_does_not_take_are_made_anew():
    assert there_and_back(Inner(4)).derived == 7


def unimportable() -> dict[str, Any]:
    def closure() -> int:
        return captured

    captured = 1

    class Local:
        pass

    @dataclass(frozen=True)
    class LocalData:
        size: int = 1

    return {"lambda": lambda: 1, "closure": closure, "class": Local, "dataclass": LocalData()}


@pytest.mark.parametrize("kind", ["lambda", "closure", "class", "dataclass"])
def test_what_cannot_be_imported_is_refused_and_named(kind):
    with pytest.raises(ConfigError) as caught:
        to_recipe({"key": unimportable()[kind]}, "the algorithm")
    message = str(caught.value)
    assert "the algorithm['key']" in message
    assert "top level of a module" in message
    assert "'inline'" in message


def test_an_object_of_no_known_kind_is_refused_and_named():
    with pytest.raises(ConfigError, match=r"environment 'x'.inner is a object.*cannot be told how to make one"):
        to_recipe(Outer(inner=object()), "environment 'x'")  # type: ignore[arg-type]


def test_an_array_of_objects_and_keys_that_are_not_text_are_refused():
    with pytest.raises(ConfigError, match="array of Python objects"):
        to_recipe(np.array([None, object()]))
    with pytest.raises(ConfigError, match="only dicts with text as keys"):
        to_recipe({1: 2})


def test_a_name_that_leads_elsewhere_is_refused(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "plain", Nested.still)
    with pytest.raises(ConfigError, match="cannot import"):
        to_recipe(functools.partial(_plain))


_plain = plain  # its qualname is still ``plain``


def test_in_a_notebook_there_is_no_script_to_import(monkeypatch):
    """A notebook's ``__main__`` has neither a file nor a name to import it by."""
    main = sys.modules["__main__"]
    monkeypatch.delattr(main, "__file__", raising=False)
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.setattr(main, "mine", plain, raising=False)
    monkeypatch.setattr(plain, "__module__", "__main__")
    monkeypatch.setattr(plain, "__qualname__", "mine")
    assert script_path() is None
    with pytest.raises(ConfigError, match="notebook"):
        to_recipe(plain)


@pytest.mark.parametrize("not_one", [{"nonsense": 1}, {"array": "x"}, {"partial": [1]}])
def test_what_is_no_recipe_is_refused(not_one):
    with pytest.raises(ConfigError, match="not a recipe"):
        from_recipe(not_one)


def test_a_name_that_is_not_there_says_so():
    with pytest.raises(ConfigError, match="'weft:Nonsense' is not there"):
        from_recipe({"name": "weft:Nonsense"})
    with pytest.raises(ModuleNotFoundError):
        from_recipe({"name": "no_such_module:thing"})


SCRIPT = """
import json, sys
from dataclasses import dataclass
from weft.core.recipe import script_path, to_recipe

@dataclass(frozen=True)
class Mine:
    size: int = 3

def make(): return Mine(4)

if __name__ == "__main__":
    print(json.dumps([script_path(), to_recipe(Mine(5)), to_recipe(make)]))
"""


def test_what_a_script_defines_is_found_by_importing_it_under_another_name(tmp_path: Path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=60)
    path, mine, make = json.loads(done.stdout)
    assert path == str(script)
    assert mine["make"] == f"{recipe.SCRIPT}:Mine"
    monkeypatch.setitem(sys.modules, recipe.SCRIPT, None)  # put back afterwards
    import_script(path)
    assert from_recipe(mine).size == 5
    assert from_recipe(make)() == type(from_recipe(mine))(4)


def test_a_script_that_trains_while_it_is_imported_is_told_where_that_belongs(tmp_path: Path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text("import weft\nweft.train('ppo', 'weft:CartPole-v1')\n")
    monkeypatch.setitem(sys.modules, recipe.SCRIPT, None)
    with pytest.raises(ConfigError, match=r"weft.train was called while .*script.py.*if __name__ == '__main__'"):
        import_script(str(script))
    recipe.refuse_while_importing("another")  # only while


def test_what_a_module_run_by_name_defines_is_found_by_that_name(tmp_path: Path):
    (tmp_path / "package_of_mine").mkdir()
    (tmp_path / "package_of_mine" / "__init__.py").touch()
    (tmp_path / "package_of_mine" / "program.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "package_of_mine.program"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path)
    path, mine, _ = json.loads(done.stdout)
    assert path is None
    assert mine["make"] == "package_of_mine.program:Mine"


def test_a_script_that_is_not_python_is_refused():
    with pytest.raises(ConfigError, match="cannot be imported by a worker"):
        import_script("/nowhere/script.text")

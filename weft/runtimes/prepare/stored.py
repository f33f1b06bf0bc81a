"""A run's folder as something to prepare again: its words become imports only where the user trusts them.

    nothing to import          built-in names: opened at once
    this user made the run     its mark is valid, and each module is where it was: opened at once
    anything else              refused, with what would be imported, unless told to trust it

A folder's words never decide more than ``weft.load`` and ``weft eval`` ask for here: ``weft train`` compares them with
its own command line, and ``weft show RUN`` draws what ``plan.json`` recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from weft.algorithms.registry import load_algorithm
from weft.core.errors import ConfigError, RunError, Untrusted
from weft.core.recipe import SCRIPT, from_recipe, open_script
from weft.core.setting import declared
from weft.envs.admission import check_factory
from weft.envs.importing import INSTALLED, find_modules_here, module_place
from weft.envs.protocol import EnvLike, EnvSource, HostEnv
from weft.envs.registry import modules_of
from weft.graph.algorithm import Algorithm
from weft.runtimes.prepare.origin import SESSION, named_modules
from weft.runtimes.prepare.settings import RunConfig
from weft.services.made_here import is_made_here
from weft.services.run_folder import RunFolder


@dataclass(frozen=True)
class Opening:
    """How a run is to be opened: what is given anew in place of what its folder says, and whether that is trusted."""

    environment: EnvLike | None = None
    algorithm: Algorithm | type[Algorithm] | str | None = None
    objects: Mapping[str, Any] = field(default_factory=dict)  # fields of the algorithm, such as its network
    trust: bool = False
    policy_only: bool = False  # make no environment


def stored_config(folder: RunFolder, opening: Opening) -> RunConfig:
    """What a run asked for, in one group, with its code imported. Raises Untrusted before anything of it is."""
    config, origin = folder.config, folder.origin()
    _check(folder)
    plain = {name: _from_json(value) for name, value in config["algo"].items()}
    if known := [name for name in opening.objects if name in plain]:
        raise ConfigError(f"the run's folder says what {', '.join(known)} was; only what it cannot hold is given again")
    asked = {name: config[name] for name in declared(RunConfig) if name in config}
    asked["plan"] = "inline"  # params do not depend on the plan, and the machine may be another
    asked["curriculum"] = None  # what is opened learns nothing more
    asked["lockstep"] = False  # one group is, unasked; asking would choose how environments are batched anew
    _allow(folder, origin, opening)
    if opening.environment is not None:
        asked["environment"] = opening.environment
        if not (isinstance(opening.environment, str) or callable(opening.environment)):
            asked["env_options"] = {}  # an object has its own
    elif opening.policy_only and origin.get("spec"):
        asked["environment"], asked["env_options"] = _unmade(config["environment"], origin["spec"]), {}
    else:
        asked["environment"] = _environment(folder, origin)
    asked["algorithm"] = _algorithm(folder, origin, opening)
    recorded = {name: from_recipe(made) for name, made in _objects(origin, opening).items()}
    return RunConfig(**asked, fields={**plain, **recorded, **opening.objects})


def imports_of(folder: RunFolder, origin: Mapping[str, Any], opening: Opening) -> dict[str, str]:
    """The modules that opening a run would import, and where each is now; Weft's own and its built-in names aside."""
    config, modules = folder.config, named_modules(*_objects(origin, opening).values())
    if opening.environment is None and not (opening.policy_only and origin.get("spec")):
        recipe = origin.get("environment")
        modules += modules_of(str(config["environment"])) if recipe is None else named_modules(recipe)
    if opening.algorithm is None and ":" in str(config["algorithm"]):
        named = str(config["algorithm"]).partition(":")[0]
        modules += named_modules(origin["algorithm"]) if origin.get("algorithm") else [named]
    return {name: _place(name, origin) for name in dict.fromkeys(modules)}


def _check(folder: RunFolder) -> None:
    """Refuse a config that no version of Weft has written."""
    kinds = {"algorithm": str, "environment": str, "algo": dict, "env_options": dict}
    for name, kind in kinds.items():
        if not isinstance(folder.config.get(name), kind):
            raise RunError(
                f"{folder.path / 'config.json'}: {name} is {folder.config.get(name)!r}, expected a {kind.__name__}. "
                "It is damaged, or no run's: restore it."
            )


def _allow(folder: RunFolder, origin: Mapping[str, Any], opening: Opening) -> None:
    wanted = imports_of(folder, origin, opening)
    if not wanted:
        return
    places = {**(origin.get("modules") or {}), SCRIPT: origin.get("script"), SESSION: ""}
    moved = [name for name, place in wanted.items() if place and places.get(name) != place]
    if not opening.trust and (moved or not is_made_here(folder.config, origin)):
        why = "was not made by you on this machine, or its config.json was changed since"
        if moved and is_made_here(folder.config, origin):
            was = places.get(moved[0]) or "not recorded"
            why = f"was made with {_words(moved[0], str(was))}, and there is another of that name now"
        listed = "\n  ".join(_words(name, place) for name, place in wanted.items())
        raise Untrusted(
            f"run {folder.name!r} {why}. To open it, this code would be imported and run:\n  {listed}\n"
            f"environment {folder.config['environment']!r}, algorithm {folder.config['algorithm']!r}. Look at that "
            "code first. If you trust it, add --trust (in Python: trust=True); `weft show` draws the run without it."
        )
    find_modules_here()
    for name, place in wanted.items():
        if not place and places.get(name) and not module_place(name):
            raise RunError(
                f"run {folder.name!r} needs {_words(name, '')}, which cannot be found from here. It was "
                f"{places[name]!r}: go to the folder that holds it, or install it."
            )
    if SCRIPT in wanted:
        _open_script(folder, origin)


def _open_script(folder: RunFolder, origin: Mapping[str, Any]) -> None:
    try:
        open_script(str(origin.get("script")))
    except ConfigError as error:
        _give_again(folder, str(error))


def _environment(folder: RunFolder, origin: Mapping[str, Any]) -> EnvLike:
    name, recipe = str(folder.config["environment"]), origin.get("environment")
    if recipe is not None:
        try:
            if isinstance(recipe, dict) and "make" in recipe:  # an object: its class is looked at before it is called
                check_factory(name, from_recipe({"name": recipe["make"]}))
            made: EnvLike = from_recipe(recipe)
        except ConfigError as error:
            _give_again(folder, f"environment {name!r}: {error}")
        return made
    if origin.get("by_name") is False:
        _give_again(folder, f"its environment {name!r} was an object or a function that a folder cannot hold")
    return name


def _algorithm(folder: RunFolder, origin: Mapping[str, Any], opening: Opening) -> Algorithm | str:
    given = opening.algorithm
    if given is None and origin.get("algorithm"):
        try:
            given = from_recipe(origin["algorithm"])
        except ConfigError as error:
            _give_again(folder, f"algorithm {folder.config['algorithm']!r}: {error}")
    elif given is None:
        given = str(folder.config["algorithm"])
        if given.startswith(f"{SESSION}:"):
            _give_again(folder, f"its algorithm {given!r} is a class that a folder cannot hold")
    if isinstance(given, str):
        return load_algorithm(given)()  # as an object: its fields are the folder's, and none is tuned
    if isinstance(given, type) and issubclass(given, Algorithm):
        return given()
    if not isinstance(given, Algorithm):
        raise ConfigError(f"algorithm {given!r}: expected a weft.Algorithm, a subclass of it, or a name")
    return given


def _objects(origin: Mapping[str, Any], opening: Opening) -> dict[str, Any]:
    """Recipes of the algorithm's fields that are not given anew; an algorithm that is given has its own."""
    if isinstance(opening.algorithm, Algorithm):
        return {}
    return {name: made for name, made in (origin.get("objects") or {}).items() if name not in opening.objects}


def _give_again(folder: RunFolder, reason: str) -> NoReturn:
    raise RunError(
        f"run {folder.name!r}: {reason}. Give it again in Python, weft.load({folder.name!r}, environment=..., "
        f"algorithm=...), or open the policy without its environment, weft.load({folder.name!r}, policy_only=True)."
    )


@dataclass(frozen=True)
class _Unmade:
    """In place of an environment's factory, where only the policy is wanted."""

    name: str

    def __call__(self, num_envs: int, seed: int, first_index: int = 0, render: bool = False) -> HostEnv:
        raise RunError(
            f"environment {self.name!r} was not made: the run was opened with policy_only=True. Open it without, to "
            "play episodes."
        )


def _unmade(name: str, spec: Any) -> EnvSource:
    described = from_recipe(spec, allowed=lambda named: named.startswith("weft.core.specs:"))
    return EnvSource(str(name), described, host=_Unmade(str(name)))


def _place(module: str, origin: Mapping[str, Any]) -> str:
    if module == SCRIPT:
        return str(origin.get("script"))
    return "" if module == SESSION else module_place(module)


def _words(module: str, place: str) -> str:
    if module == SCRIPT:
        return f"the script {place!r}"
    if module == SESSION:
        return "what this session has defined under the names that the folder gives"
    return f"the module {module!r}" + (f" ({place})" if place == INSTALLED else f" ({place!r})" if place else "")


def _from_json(value: Any) -> Any:
    """A field's value as config.json has it, to what the algorithm takes: tuples are lists there, infinity is text."""
    if isinstance(value, list):
        return tuple(_from_json(v) for v in value)
    return float(value) if value in ("inf", "-inf") else value

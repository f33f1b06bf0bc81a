"""What workers are given: what their channels take of memory, and what is refused before anything starts."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from toys import prepared

import weft
from weft.core.errors import ConfigError
from weft.runtimes.prepare.config import Settings
from weft.runtimes.workers.layout.launch_spec import launch_spec
from weft.streams.registry import create

SMALL = weft.PPO(unroll=4, hidden=(8,))


def test_memory_is_what_the_channels_are_given():
    outfit = launch_spec(prepared(SMALL, "CartPole-v1", plan="env*2 | act | learn", envs=8), Settings())
    sizes: dict[str, int] = {}
    for wire in outfit.blueprint.wires:
        created = create(outfit.specs[wire.name])
        sizes[wire.stream] = sizes.get(wire.stream, 0) + os.fstat(created.fds[0]).st_size
        created.close()
    assert outfit.memory("shm") == outfit.memory() == sizes
    assert list(outfit.memory()) == sorted(sizes, key=lambda stream: -sizes[stream])


def test_over_sockets_each_end_has_memory_and_none_is_shared():
    run = prepared(SMALL, "CartPole-v1", plan="(env+act)*2 | learn", envs=8)
    shared, sockets = launch_spec(run, Settings()).memory(), launch_spec(run, Settings(channel="tcp"))
    assert sockets.memory("shm") == {}
    assert sockets.memory() == {"unroll": 2 * shared["unroll"], "params": 3 * shared["params"]}


def test_within_one_worker_params_are_not_shared_and_unrolls_are():
    outfit = launch_spec(prepared(SMALL, "CartPole-v1", plan="env*2 | act+learn", envs=8), Settings())
    assert set(outfit.memory("shm")) == {"timestep", "action", "unroll"}
    assert set(outfit.memory("inproc")) == {"params"}


@pytest.mark.parametrize(
    ("lockstep", "lag"), [(False, ", a shorter --algo.unroll or a smaller --max-lag."), (True, "")]
)
def test_more_than_the_machine_has_is_refused_and_says_what_takes_it(lockstep, lag):
    run = prepared(SMALL, "CartPole-v1", plan="env*2 | act | learn", envs=8, lockstep=lockstep)
    total = sum(launch_spec(run, Settings()).memory().values())

    def on(memory):
        return launch_spec(replace(run, machine=replace(run.machine, memory=memory)), Settings())

    on(total)
    on(0)  # unknown
    with pytest.raises(ConfigError) as caught:
        on(total - 1)
    message = str(caught.value)
    assert message.startswith("the streams of plan 'env*2 | act | learn' need ")
    assert all(f"{stream} " in message for stream in ("unroll", "params", "timestep", "action"))
    assert "Use fewer --envs" in message
    assert message.endswith(lag or "Use fewer --envs or a shorter --algo.unroll.")


def test_what_workers_cannot_import_is_refused():
    with pytest.raises(ConfigError, match=r"environment .*which a worker process cannot import.*plan 'inline'"):
        launch_spec(prepared(SMALL, lambda: _pole(), plan="env | act | learn"), Settings())

    class Here(weft.PPO):
        pass

    with pytest.raises(ConfigError, match=r"the algorithm is .*Here, which a worker process cannot import"):
        launch_spec(prepared(Here(unroll=4, hidden=(8,)), "CartPole-v1", plan="env | act | learn"), Settings())


def _pole():
    import gymnasium

    return gymnasium.make("CartPole-v1")

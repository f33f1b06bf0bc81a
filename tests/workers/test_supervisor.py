"""The supervisor: each row of the table at the top of its file, without a process."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from drafts import drafted, loop, same, two_policies

from weft.runtimes.workers.control.supervisor import (
    FAST_SECONDS,
    MAX_EARLY_DEATHS,
    MAX_EARLY_KILLS,
    MAX_FAST_CRASHES,
    MAX_FRUITLESS_DEATHS,
    MAX_FRUITLESS_KILLS,
    Died,
    Doubt,
    Fail,
    Failed,
    Homeless,
    Hung,
    Kill,
    Ready,
    Recover,
    Replace,
    Slow,
    Supervisor,
    Tell,
)

HOW = "was killed by SIGKILL"


def supervised(plan="env*2 | act | learn", **manner):
    """A supervisor of workers that are all ready, and their indices by name."""
    supervisor = Supervisor(drafted(plan, **manner))
    named = {worker.name: worker.index for worker in supervisor.blueprint.workers}
    for worker in named.values():
        assert supervisor.handle(Ready(worker)) == []
    return supervisor, named


def kinds(instructions):
    return [type(instruction) for instruction in instructions]


def test_an_error_fails_the_run_with_what_the_worker_said():
    supervisor, named = supervised()
    (fail,) = supervisor.handle(Failed(named["env-1"], "environment 5 raised at step 7"))
    assert fail == Fail("worker env-1 failed: environment 5 raised at step 7")
    assert supervisor.handle(Died(named["env-1"], "left with exit code 1")) == []  # it has said why
    assert supervisor.restarts == 0


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.parametrize("first", ["error", "death"])
def test_an_error_of_a_learner_whose_peer_was_killed_is_no_failure(first, lockstep):
    supervisor, named = supervised("env*2 | act | learn*2", lockstep=lockstep)
    complaint, death = Failed(named["learn-0"], "Gloo: closed by peer"), Died(named["learn-1"], HOW, True)
    for event in (complaint, death) if first == "error" else (death, complaint):
        instructions = supervisor.handle(event)
        expected = [Doubt] if event is complaint else [Tell, Recover]
        assert kinds(instructions) == expected
    assert supervisor.handle(Died(named["learn-0"], "left with exit code 1")) == []  # it has said why
    supervisor.recovered(supervisor.learning)
    for worker in supervisor.learning:
        supervisor.handle(Ready(worker))
    assert kinds(supervisor.handle(Died(named["learn-0"], HOW, True))) == [Tell, Recover]


def test_an_error_of_one_policys_learner_is_not_put_down_to_anothers_death():
    """Only replicas of one learner are one program."""
    supervisor, named = supervised("(env+act)*2 | learn.red*2 | learn.blue*2", graph=two_policies())
    assert kinds(supervisor.handle(Failed(named["learn.red-0"], "your network raised"))) == [Doubt]
    assert kinds(supervisor.handle(Failed(named["learn.blue-0"], "another"))) == [Doubt]
    (fail,) = supervisor.handle(Failed(named["learn.red-1"], "Gloo: closed by peer"))
    assert fail == Fail("worker learn.red-0 failed: your network raised")
    single, named = supervised("(env+act)*2 | learn.red | learn.blue", graph=two_policies())
    assert kinds(single.handle(Failed(named["learn.red-0"], "your network raised"))) == [Fail]


def test_an_error_that_all_learners_meet_fails_the_run_with_the_first():
    supervisor, named = supervised("env*2 | act | learn*2")
    assert supervisor.handle(Failed(named["learn-1"], "your network raised")) == [
        Doubt("worker learn-1 failed: your network raised")
    ]
    (fail,) = supervisor.handle(Failed(named["learn-0"], "Gloo: closed by peer"))
    assert fail == Fail("worker learn-1 failed: your network raised")


def test_an_error_of_a_learner_that_starts_again_is_tried_again_but_not_for_ever():
    """The others may have been killed again meanwhile, or a port taken."""
    supervisor, named = supervised("env*2 | act | learn*2")
    supervisor.handle(Died(named["learn-1"], HOW, True))
    for early in range(1, MAX_EARLY_DEATHS + 1):
        supervisor.recovered(supervisor.learning)
        instructions = supervisor.handle(Failed(named["learn-0"], "cannot connect"))
        assert kinds(instructions) == ([Tell, Recover] if early < MAX_EARLY_DEATHS else [Fail])
    assert "cannot connect" in instructions[0].reason


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.parametrize("killed", [True, False])
def test_a_worker_that_was_never_ready_fails_the_run(killed, lockstep):
    supervisor = Supervisor(drafted("env*2 | act | learn", lockstep=lockstep))
    supervisor.handle(Ready(0))
    (fail,) = supervisor.handle(Died(1, "left with exit code 1", killed))
    assert fail == Fail("worker env-1 left with exit code 1 before it was ready")


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        ("env*2 | act | learn", "env-1"),
        ("env*2 | act | learn", "act-0"),
        ("(env+act)*2 | learn", "env+act-0"),
        ("(env+act+grad)*2 | apply", "env+act+grad-1"),
        ("(env+act)*2 | grad*2 | apply", "grad-0"),
        ("(env+act)*2 | mine*2 | learn", "mine-1"),
        ("env+mine | act | learn", "env+mine-0"),
    ],
)
def test_who_holds_nothing_of_the_state_is_replaced_alone(plan, name):
    supervisor, named = supervised(plan, graph=loop().insert("mine", same) if "mine" in plan else None)
    tell, replace = supervisor.handle(Died(named[name], HOW, True))
    assert replace == Replace(named[name])
    assert tell == Tell(f"worker {name} {HOW}: it is replaced")
    assert supervisor.restarts == 1
    assert supervisor.ready == set(named.values()) - {named[name]}


@pytest.mark.parametrize(
    ("plan", "name", "all_of_them"),
    [
        ("env*2 | act | learn", "learn-0", ["learn-0"]),
        ("env*2 | act | learn*2", "learn-1", ["learn-0", "learn-1"]),
        ("env*2 | (act+learn)*2", "act+learn-0", ["act+learn-0", "act+learn-1"]),
        ("(env+act+grad)*2 | apply", "apply-0", ["apply-0"]),
        ("env+learn | act", "env+learn-0", ["env+learn-0"]),
        (
            "(env+act)*2 | learn.red*2 | learn.blue*2",
            "learn.blue-0",
            ["learn.red-0", "learn.red-1", "learn.blue-0", "learn.blue-1"],
        ),
    ],
)
def test_when_a_learner_dies_all_learners_go_on_from_the_checkpoint(plan, name, all_of_them):
    supervisor, named = supervised(plan, graph=two_policies() if "red" in plan else None)
    tell, recover = supervisor.handle(Died(named[name], HOW, True))
    assert recover == Recover(tuple(named[n] for n in all_of_them))
    assert isinstance(tell, Tell)
    assert name in tell.text
    assert "all learners are replaced" in tell.text
    supervisor.recovered(recover.workers)
    assert supervisor.ready == set(named.values()) - set(recover.workers)


@pytest.mark.parametrize("name", ["env-0", "act-0", "learn-0"])
def test_in_lockstep_whoever_dies_everything_goes_back(name):
    supervisor, named = supervised(lockstep=True)
    tell, recover = supervisor.handle(Died(named[name], HOW, True))
    assert recover == Recover(tuple(named.values()))
    assert tell == Tell(f"worker {name} {HOW}: lockstep replaces all workers")


@pytest.mark.parametrize("lockstep", [True, False])
def test_one_that_only_looks_on_is_replaced_alone_in_lockstep_too(lockstep):
    graph = loop().watch("looks", SimpleNamespace(every=10))
    supervisor, named = supervised("env*2 | act | learn | looks", graph=graph, lockstep=lockstep)
    blueprint = supervisor.blueprint
    assert blueprint.watching_workers() == {named["looks-0"]}
    assert blueprint.saving().isdisjoint(blueprint.watching), "nothing of it is saved"
    assert supervisor.handle(Died(named["looks-0"], HOW, True))[-1] == Replace(named["looks-0"])
    assert supervisor.restarts == 1


def test_who_hangs_is_killed_and_so_dies():
    supervisor, named = supervised()
    tell, kill = supervisor.handle(Hung(named["env-0"], 61.2, "it is asleep"))
    assert kill == Kill(named["env-0"])
    assert tell == Tell("worker env-0 has made no progress for 61 s (it is asleep): it is killed and replaced")
    assert supervisor.restarts == 0, "it is counted when it is dead"
    assert kinds(supervisor.handle(Died(named["env-0"], HOW, True))) == [Tell, Replace]
    assert supervisor.restarts == 1


def test_who_hangs_before_it_was_ever_ready_fails_the_run():
    supervisor = Supervisor(drafted("env*2 | act | learn"))
    (fail,) = supervisor.handle(Hung(0, 121.0, "environment 3 has not returned from reset()"))
    assert fail == Fail(
        "worker env-0 has made no progress for 121 s and is not ready (environment 3 has not returned from reset())"
    )


def test_who_is_slow_is_named_and_goes_on():
    supervisor, named = supervised()
    (tell,) = supervisor.handle(Slow(named["learn-0"], 31.0, "it computes", 150.0))
    assert "worker learn-0 has made no progress for 31 s: it computes" in tell.text
    assert "150 s" in tell.text
    assert supervisor.ready == set(named.values())


@pytest.mark.parametrize(("killed", "limit"), [(False, MAX_EARLY_DEATHS), (True, MAX_EARLY_KILLS)])
def test_lives_that_never_get_ready_end_the_run_in_the_end(killed, limit):
    supervisor, named = supervised()
    env = named["env-0"]
    assert kinds(supervisor.handle(Died(env, HOW, killed))) == [Tell, Replace]  # it had been ready
    for _ in range(limit - 1):
        assert kinds(supervisor.handle(Died(env, HOW, killed))) == [Tell, Replace]
    (fail,) = supervisor.handle(Died(env, HOW, killed))
    assert fail == Fail(f"worker env-0 {HOW} before it was ready, {limit} times in a row")


def test_a_life_that_got_ready_begins_the_count_anew():
    supervisor, named = supervised()
    env = named["env-0"]
    for _ in range(3 * MAX_EARLY_DEATHS):
        assert kinds(supervisor.handle(Died(env, "left with exit code 1"))) == [Tell, Replace]
        assert kinds(supervisor.handle(Died(env, "left with exit code 1"))) == [Tell, Replace]
        assert supervisor.handle(Ready(env)) == []
        supervisor.learned()  # else it would be given up for that
    assert supervisor.restarts == 6 * MAX_EARLY_DEATHS


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.parametrize(("how", "limit"), [("dies", MAX_FRUITLESS_DEATHS), ("killed", MAX_FRUITLESS_KILLS)])
def test_a_worker_that_dies_again_and_again_ends_the_run_unless_something_is_learned(how, limit, lockstep):
    supervisor, named = supervised(lockstep=lockstep)
    env = named["env-0"]

    def dies():
        supervisor.handle(Ready(env))
        return supervisor.handle(Died(env, HOW, how == "killed"))

    for _ in range(limit - 1):
        assert kinds(dies()) == [Tell, Recover if lockstep else Replace]
    supervisor.learned()
    for _ in range(limit - 1):
        assert kinds(dies()) == [Tell, Recover if lockstep else Replace]
    assert dies() == [Fail(f"worker env-0 {HOW}, {limit} times without a learn step in between: it is given up")]


def test_who_hangs_again_and_again_is_not_replaced_for_ever():
    supervisor, named = supervised()
    env = named["env-0"]
    for _ in range(MAX_FRUITLESS_DEATHS - 1):
        supervisor.handle(Hung(env, 60.0))
        assert kinds(supervisor.handle(Died(env, HOW, True))) == [Tell, Replace]
        supervisor.handle(Ready(env))
    supervisor.handle(Hung(env, 60.0))
    assert kinds(supervisor.handle(Died(env, HOW, True))) == [Fail]


def test_deaths_at_the_same_time_are_each_dealt_with():
    supervisor, named = supervised()
    first = supervisor.handle(Died(named["learn-0"], HOW, True))
    second = supervisor.handle(Died(named["env-0"], HOW, True))
    assert kinds(first) == [Tell, Recover]
    assert kinds(second) == [Tell, Replace]
    assert supervisor.restarts == 2


def crash(supervisor, worker, lived=1.0):
    """A worker ends by itself, ``lived`` seconds after it was ready; the others learn meanwhile."""
    instructions = supervisor.handle(Died(worker, "was killed by SIGSEGV", False, lived, "in step"))
    if not isinstance(instructions[-1], Fail) and worker not in supervisor.given_up:
        supervisor.handle(Ready(worker))
    supervisor.learned()
    return instructions


def test_a_worker_that_crashes_soon_again_and_again_is_given_up_and_the_last_of_its_kind_ends_the_run():
    supervisor, named = supervised("env*2 | act | learn")
    for _ in range(MAX_FAST_CRASHES - 1):
        assert kinds(crash(supervisor, named["env-0"])) == [Tell, Replace]
    (told,) = crash(supervisor, named["env-0"])
    assert isinstance(told, Tell)
    assert "given up; the others go on\nin step" in told.text
    for _ in range(MAX_FAST_CRASHES - 1):
        crash(supervisor, named["env-1"])
    (failed,) = crash(supervisor, named["env-1"])
    assert isinstance(failed, Fail)
    assert "cannot go on without it\nin step" in failed.reason


@pytest.mark.parametrize("name", ["act-0", "learn-0"])
def test_without_the_only_worker_of_a_stage_nothing_goes_on(name):
    supervisor, named = supervised("env*2 | act | learn")
    for _ in range(MAX_FAST_CRASHES - 1):
        crash(supervisor, named[name])
    assert kinds(crash(supervisor, named[name])) == [Fail]


def test_a_crash_now_and_then_is_no_reason_to_give_a_worker_up():
    supervisor, named = supervised("env*2 | act | learn")
    for lived in [1.0, 1.0, FAST_SECONDS + 1.0] * 3:
        assert kinds(crash(supervisor, named["env-0"], lived)) == [Tell, Replace]


def test_in_lockstep_every_worker_is_needed():
    supervisor, named = supervised("env*2 | act | learn", lockstep=True)
    for _ in range(MAX_FAST_CRASHES - 1):
        assert kinds(crash(supervisor, named["env-0"])) == [Tell, Recover]
    assert kinds(crash(supervisor, named["env-0"])) == [Fail]


def test_a_worker_that_finds_no_host_is_done_without_and_the_last_of_its_kind_ends_the_run():
    supervisor, named = supervised()
    (tell,) = supervisor.handle(Homeless(named["env-0"], "h1"))
    assert isinstance(tell, Tell)
    assert "env-0 was lost with host h1, and no other host has room for it; the others go on" in tell.text
    assert supervisor.given_up == {named["env-0"]}
    for last in ("env-1", "act-0", "learn-0"):
        (fail,) = supervisor.handle(Homeless(named[last], "h1"))
        assert isinstance(fail, Fail)
        assert "cannot go on without it" in fail.reason

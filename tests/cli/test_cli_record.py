"""``weft record``: a data set out of a run, and a run out of the data set."""

from __future__ import annotations

from command_line import Weft

import weft as library


def test_from_a_run_to_a_data_set_to_a_run(train: Weft, weft: Weft) -> None:
    train("mine:Walk", "--run", "a")
    ended = weft("record", "a", "data", "--steps", "25", "--explore")
    assert ended == (0, "data: 25 steps in 3 episodes, mean return 10.00 of those that ended\n", "")
    assert library.Dataset.load("data").lengths.tolist() == [10, 10, 5]
    code, _, err = weft("record", "a", "data")
    assert (code, err) == (2, "weft: error: data is there and not empty: choose another folder, or remove it first\n")
    told = weft("record", "a", "more", "--steps", "20", "--json").json
    assert (told["folder"], told["steps"], told["episodes_ended"], told["return_mean"]) == ("more", 20, 2, 10.0)
    assert told["recorded"]["explore"] is False
    sizes = ["--envs", "4", "--steps", "64", "--algo.unroll", "4", "--algo.hidden", "8", "--algo.batch", "8"]
    cloned = weft("train", "bc", "mine:Walk", *sizes, "--algo.updates", "2", "--algo.data", "data", "--json", "--quiet")
    assert cloned.code == 0
    assert cloned.json["learn_steps"] == 8


def test_a_run_that_is_not_there(weft: Weft) -> None:
    code, _, err = weft("record", "nobody", "data")
    assert code == 2
    assert "nobody" in err
    assert weft("record", "a").err == "weft: error: weft record needs DIR. `weft record --help` tells more.\n"

"""Words of the whole run reach workers by shared memory on the launcher's host, and by message on others."""

from __future__ import annotations

from types import SimpleNamespace

from weft.runtimes.workers.control.link import Link
from weft.runtimes.workers.counting.account import Account, OfRun
from weft.runtimes.workers.worker import heed


def test_words_of_the_run_travel_by_message():
    """What a worker of another host hears goes into its own host's account, and wakes its sides."""
    here, theirs = Link.pair()
    there, account, rung = Link(theirs), Account(1, 1), []
    side = SimpleNamespace(context=SimpleNamespace(index=0, bell=SimpleNamespace(ring=lambda: rung.append(1))))
    made = SimpleNamespace(task=SimpleNamespace(account=account), sides=[side])
    for words, limit, stop in (({"limit": 7, "stop": False}, 7, 0), ({"limit": None, "stop": True}, 7, 1)):
        here.say("run", words)
        heed(made, there.hear(5.0))
        assert (account.run[OfRun.LIMIT], account.run[OfRun.STOP]) == (limit, stop)
    assert len(rung) == 2
    account.close()
    here.close()
    there.close()

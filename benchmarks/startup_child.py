"""A fresh process that trains for two learn steps in the environment it is given, and prints its times as JSON.

Follows what ``weft train`` does with its defaults, without the command line and the run's folder.
"""

from __future__ import annotations

import json
import sys
import time


def main(environment: str) -> None:
    from weft.runtimes.prepare.config import RunConfig
    from weft.runtimes.prepare.jax_setup import set_up

    set_up(cache=True)
    from weft.runtimes.loop.train import make_engine
    from weft.runtimes.prepare.config import prepare

    imported = time.time()
    engine = make_engine(prepare(RunConfig("ppo", environment)))
    engine.start()
    started = time.time()
    engine.advance(1)()
    first = time.time()
    engine.advance(1)()
    second = time.time()
    engine.close()
    print(json.dumps({"imported": imported, "started": started, "first_learn": first, "second_learn": second}))


if __name__ == "__main__":
    main(sys.argv[1])

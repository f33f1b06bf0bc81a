"""Worker processes: each replica of a group of a plan is a process, and channels join them.

layout/      graph and plan -> workers, sides, lanes, wires, and what each worker is given (pure)
control/     starting, hearing, replacing and ending processes; the supervisor decides (pure: event -> instructions)
counting/    counters in shared memory, the ledger that they make, what they tell of speed
engine       the workers behind the Engine protocol, so that a run goes on as in one process; ``saving``: checkpoints
worker       a worker's main; ``wiring`` opens its channels and builds its sides; ``side``: what all sides share
wires        ends of wires that the ledger counts; ``weights``: of params; ``unroll_writer``: of unrolls
batches      what makes the next batch of a side that learns, with ``collector``
acting       what every side that acts has; with ``lane_checkpoint`` and ``episode_reports`` (``episode_order``: sorted)

The sides themselves are in ``weft.runtimes.roles``.
"""

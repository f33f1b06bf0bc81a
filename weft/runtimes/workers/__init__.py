"""Worker processes: the groups of a plan, each in processes of its own, joined by channels.

blueprint    plan -> workers, lanes, channels (pure)
supervisor   what to do when a worker starts, dies or hangs (pure: event -> instructions)
launcher     makes channels and processes, and does what the supervisor says
engine       the launcher behind the Engine protocol, so that a run goes on as in one process
gauges       what the workers' counters tell of speed: busy stages, queues, messages a second
worker       a child's main; its sides: env_side, actor, act_side, learn_side, grad_side, apply_side
"""

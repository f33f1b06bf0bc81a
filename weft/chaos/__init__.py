"""Training under injected faults: a schedule, the run that suffers it, what is done to it, and the verdict."""

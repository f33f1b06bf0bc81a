"""Types, specs, trees, keys, config, errors: nothing about reinforcement learning's algorithms."""

"""What a run stands on: its folder, and checkpoints that survive crashes and notice damage."""

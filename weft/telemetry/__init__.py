"""How a run is told: counters, the sample ledger, and sinks (JSONL, TensorBoard, W&B, the terminal)."""

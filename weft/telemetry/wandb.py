"""Records sent to Weights & Biases (the extra ``wandb``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.core.errors import MissingExtra
from weft.telemetry.sink import Record


def require_wandb() -> Any:
    """The package ``wandb``, loaded. Raises MissingExtra where it is not installed."""
    try:
        import wandb
    except ImportError:
        raise MissingExtra("logging to Weights & Biases", "wandb", "wandb") from None
    return wandb


class Wandb:
    """Logs each record to a W&B run, against ``env_steps``.

    The same ``run_id`` again goes on with that run. Whether it uploads, writes offline or does nothing is W&B's own
    setting (``WANDB_MODE``). Making it blocks until W&B is ready. Raises MissingExtra, or OSError where W&B cannot be
    reached.
    """

    every = 0.25

    def __init__(self, project: str, name: str, run_id: str, folder: Path, config: Mapping[str, Any]) -> None:
        wandb = require_wandb()
        self._failure: type[Exception] = wandb.errors.Error
        try:
            self._run = wandb.init(
                project=project, name=name, id=run_id, resume="allow", dir=str(folder), config=dict(config)
            )
        except self._failure as error:
            raise OSError(f"Weights & Biases: {error}") from error
        # Against env_steps, not W&B's own counter: after a resume that one would refuse steps it has seen.
        self._run.define_metric("env_steps")
        self._run.define_metric("*", step_metric="env_steps")

    def write(self, record: Record, env_steps: int) -> None:
        """Log the record; W&B sends it in the background. Raises OSError."""
        try:
            self._run.log({**record, "env_steps": env_steps})
        except self._failure as error:
            raise OSError(f"Weights & Biases: {error}") from error

    def close(self) -> None:
        """Finish the W&B run; blocks until it is uploaded. Raises OSError."""
        run, self._run = self._run, None
        if run is not None:
            try:
                run.finish()
            except self._failure as error:
                raise OSError(f"Weights & Biases: {error}") from error

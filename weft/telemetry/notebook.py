"""The live table in a notebook: one output of the cell, drawn anew in place."""

from __future__ import annotations

import html
import io
import sys
from typing import Any

from rich.console import Console, RenderableType

from weft.telemetry.sink import Record
from weft.telemetry.terminal import Terminal

WIDTH = 100
"""Characters in a line of the table."""
PRE = "<pre style='font-family:monospace;line-height:1.3;margin:0'>{code}</pre>"


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel; imports nothing."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


class Notebook(Terminal):
    """What ``Terminal`` shows, as HTML in the cell's output. It needs no widgets: IPython's display is enough."""

    def __init__(self, title: str = "", total_steps: int | None = None, display: Any = None) -> None:
        super().__init__(title, total_steps, every=1.0, console=Console(file=io.StringIO(), width=WIDTH))
        self._show = display or sys.modules["IPython"].display
        self._handle: Any = None

    def open(self) -> None:
        """Show the table, empty as yet."""
        if self._handle is None:
            self._handle = self._show.display(self._html({}), display_id=True)

    def write(self, record: Record, env_steps: int) -> None:
        """Draw the table anew."""
        super().write(record, env_steps)
        if self._handle is not None:
            self._handle.update(self._html(record))

    def note(self, text: str) -> None:
        """Show the text below."""
        self._show.display(self._show.HTML(f"<div>{html.escape(text)}</div>"))

    def warn(self, text: str) -> None:
        """Show the text below, marked as a warning."""
        self._show.display(self._show.HTML(f"<div><b>warning:</b> {html.escape(text)}</div>"))

    def close(self) -> None:
        """Leave the table as it is."""
        self._handle = None

    def _html(self, record: Record) -> Any:
        console = Console(file=io.StringIO(), width=WIDTH, record=True, force_terminal=True, force_jupyter=False)
        drawn: RenderableType = self._draw(record)
        console.print(drawn)
        return self._show.HTML(console.export_html(inline_styles=True, code_format=PRE))

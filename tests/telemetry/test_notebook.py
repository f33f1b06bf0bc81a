"""The live table in a notebook's cell: one output, drawn anew."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from weft.telemetry.notebook import Notebook, in_notebook
from weft.telemetry.telemetry import open_telemetry


class Display:
    """What ``IPython.display`` is to the notebook."""

    def __init__(self):
        self.shown, self.updates = [], []

    def HTML(self, text):
        return text

    def display(self, what, display_id=False):
        self.shown.append(what)
        return SimpleNamespace(update=self.updates.append)


def test_the_table_is_drawn_anew_in_its_place():
    display = Display()
    screen = Notebook("ppo · CartPole", 1000, display)
    screen.open()
    screen.write({"return_mean": 12.5, "env_steps_per_second": 10.0}, 500)
    screen.warn("a <b> of yours")
    screen.close()
    assert len(display.updates) == 1
    assert "12.5" in display.updates[0]
    assert "500 / 1,000 steps" in display.updates[0]
    assert display.shown[1] == "<div><b>warning:</b> a &lt;b&gt; of yours</div>"


def test_only_a_kernel_is_a_notebook(monkeypatch):
    def ipython(shell):
        return SimpleNamespace(get_ipython=lambda: shell, display=Display())

    monkeypatch.setitem(sys.modules, "IPython", ipython(None))
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", ipython(SimpleNamespace()))  # a shell in a terminal
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", ipython(SimpleNamespace(kernel=1)))
    assert in_notebook()
    with open_telemetry(title="t") as telemetry:
        assert isinstance(telemetry.screen, Notebook)

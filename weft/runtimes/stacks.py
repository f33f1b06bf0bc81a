"""What a thread is in, read from its frames by another thread. Loads no JAX."""

from __future__ import annotations

import os
import sys
import traceback
from types import FrameType

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep  # as frames have it
_JAX = os.sep + "jax" + os.sep
_COMPILER = _JAX + os.path.join("_src", "compiler.py")
_LOWERING = (_JAX + os.path.join("_src", "interpreters", "mlir.py"), "lower_jaxpr_to_module")
_TRACING = (_JAX + os.path.join("_src", "interpreters", "partial_eval.py"), "trace_to_jaxpr")


def frame_of(thread: int) -> FrameType | None:
    """The innermost frame of a thread, by its identifier; None where it has ended."""
    return sys._current_frames().get(thread)


def frames() -> list[FrameType]:
    """The innermost frames of all threads."""
    return list(sys._current_frames().values())


def is_compiling(frame: FrameType | None) -> bool:
    """Whether JAX traces, lowers or compiles there."""
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file.endswith(_COMPILER):
            return True
        if any(file.endswith(place) and name.startswith(start) for place, start in (_LOWERING, _TRACING)):
            return True
        frame = frame.f_back
    return False


def is_computing(frame: FrameType | None) -> bool:
    """Whether a compiled program runs there, or the runtime's own code: nobody else's is at work."""
    return frame is not None and (frame.f_code.co_filename.startswith(_OURS) or _JAX in frame.f_code.co_filename)


def stack_of(frame: FrameType | None) -> str:
    """The stack in lines, as a traceback has it, outermost first."""
    return "" if frame is None else "".join(traceback.format_stack(frame))

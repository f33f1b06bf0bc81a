"""Messages whose large arrays are sent to the device before their batch is complete."""

from __future__ import annotations

import jax
import numpy as np

from weft.runtimes.workers.brought import LARGE_ARRAY_BYTES, Brought
from weft.streams.channel import Message, Stamp

LEG = ("act", "unroll")


def message(sequence: int) -> Message:
    large, small = np.full(LARGE_ARRAY_BYTES, sequence % 256, np.uint8), np.full(3, sequence, np.int32)
    return Message(Stamp(sequence=sequence), [large, small], sequence)


def test_large_arrays_are_on_the_device_and_small_ones_where_they_lie():
    brought, one = Brought(), message(7)
    brought.bring(LEG, [one])
    large, small = brought.arrays(LEG, one)
    assert isinstance(large, jax.Array)
    assert small is one.arrays[1]
    np.testing.assert_array_equal(large, one.arrays[0])


def test_what_was_not_brought_is_as_it_came():
    one = message(1)
    assert Brought().arrays(LEG, one) is one.arrays


def test_it_is_sent_once_and_forgotten_when_it_was_used():
    brought, first, second = Brought(), message(1), message(2)
    brought.bring(LEG, [first])
    there = brought.arrays(LEG, first)[0]
    brought.bring(LEG, [first, second])
    assert brought.arrays(LEG, first)[0] is there
    brought.keep([(LEG, second.stamp), (LEG, message(3).stamp)])
    assert brought.arrays(LEG, first) is first.arrays
    assert isinstance(brought.arrays(LEG, second)[0], jax.Array)

"""Messages whose numbers are in the account: the next that counts, whoever was killed. See ``account.py`` for why."""

from __future__ import annotations

from weft.streams.channel import Message, Reader


def receive_numbered(reader: Reader, expected: int) -> tuple[Message, int] | None:
    """The next message from number ``expected`` on, and how many before it never came; None while there is none.

    Messages below it were accounted for by an earlier life, which was killed before it released them. Does not wait.
    """
    message = reader.receive(0)
    while message is not None and message.stamp.sequence < expected:
        reader.release(message)
        message = reader.receive(0)
    return None if message is None else (message, message.stamp.sequence - expected)

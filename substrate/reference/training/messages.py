"""Messages: lists of results, as bytes, between a zygote, a program's process and the trainer."""

import struct

Result = tuple[str, bytes]  # its kind; the bytes of a value or of code, or a reason in UTF-8

# Of a reply: exit code or negative signal, CPU seconds, out of time, out of room for the message.
HEADER = struct.Struct(">id??")

_HEAD = struct.Struct(">BI")  # the lengths of kind and bytes
_pack, _unpack = _HEAD.pack, _HEAD.unpack_from


class OddMessage(ValueError):
    """These bytes are no message."""


def join(results: list[Result]) -> bytes:
    """The message of these results."""
    parts = []
    for kind, data in results:
        parts += [_pack(len(kind), len(data)), kind.encode(), data]
    return b"".join(parts)


def split(message: bytes) -> list[Result]:
    """The results of a message. Raises OddMessage."""
    results = []
    at = 0
    try:
        while at < len(message):
            length, size = _unpack(message, at)
            middle = at + _HEAD.size + length
            kind = message[at + _HEAD.size : middle].decode("ascii")
            at = middle + size
            results.append((kind, message[middle:at]))
    except (struct.error, UnicodeDecodeError) as error:
        raise OddMessage(str(error)) from error
    if at != len(message):
        raise OddMessage(f"wanted {at} bytes, found {len(message)}")
    return results

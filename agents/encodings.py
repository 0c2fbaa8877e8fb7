"""Encodings of a secret: the spellings in which it would still give itself away.

Six of them: plain, reversed, base64 (both alphabets, at each of the three alignments that it may
have within a longer text), hexadecimal (both cases), percent-encoded (every byte, both cases) and
UTF-16. Standard library only: the broker starts without anything else.
"""

import base64

SHORTEST = 12  # characters of a key: anything shorter would be found in innocent text


def encodings(secret: str) -> dict[str, tuple[bytes, ...]]:
    """The bytes to look for, by the name of the encoding.

    UTF-16 is without its first and last zero byte, so that both byte orders hold it.
    """
    plain = secret.encode()
    hexadecimal = plain.hex()
    percent = "".join(f"%{byte:02x}" for byte in plain)
    wide = secret.encode("utf-16-be")
    return {
        "plain": (plain,),
        "reversed": (plain[::-1],),
        "base64": _base64(plain),
        "hexadecimal": _cases(hexadecimal),
        "percent": _cases(percent),
        "utf-16": (wide[1:] if wide[0] == 0 else wide,),
    }


def spellings(secret: str) -> tuple[bytes, ...]:
    """All of them, longest first: what is masked must not leave a longer one's tail."""
    found = {spelling for group in encodings(secret).values() for spelling in group}
    return tuple(sorted(found, key=lambda spelling: (-len(spelling), spelling)))


def _cases(text: str) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys((text.lower().encode(), text.upper().encode())))


def _base64(plain: bytes) -> tuple[bytes, ...]:
    """Those characters that depend on the secret alone, whatever stands around it."""
    found = []
    for shift, begin in ((0, 0), (1, 2), (2, 3)):
        encoded = base64.b64encode(b"\0" * shift + plain)
        inner = encoded[begin : (shift + len(plain)) * 8 // 6]
        found += [inner, inner.replace(b"+", b"-").replace(b"/", b"_")]
    return tuple(dict.fromkeys(found))

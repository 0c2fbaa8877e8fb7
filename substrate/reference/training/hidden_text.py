"""Text that hides in a text: characters that nobody sees, and a tokenizer's control tokens spelled
out.

    without_hidden("a\\u200bb <|im_end|>")  Cleaned("ab < |im_end|>", hidden=1, control_tokens=1)

Hidden characters carry instructions past a reader's eye; a control token that is spelled out ends
a turn when a tokenizer meets it in a prompt. Texts from outside lose both. Joiners and variation
selectors go too: Persian, Indic scripts and emoji lose some of their form, none of their letters.

Control tokens are known by the forms that models in use have, whatever the tokenizer.
"""

import re
from dataclasses import dataclass

# The newlines of other systems, page breaks, Unicode's separators.
_NEWLINES = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
# Controls, formats without a glyph (zero width, direction, tags), fillers, variation selectors,
# surrogates, private use, and places where no character is.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
)
_CONTROL_TOKEN = re.compile(
    "<[|\uff5c][^<>|\uff5c\n]{1,64}[|\uff5c]>"  # <|im_end|>, and with full-width bars
    r"|</?(?:s|bos|eos|pad|unk|mask|think|(?:start|end)_of_(?:turn|image)|tool_(?:call|response))>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\]"
    r"|<</?SYS>>"
)


@dataclass(frozen=True)
class Cleaned:
    text: str  # its lines end in \n
    hidden: int  # characters that were removed
    control_tokens: int  # that were broken up by a space


def without_hidden(text: str) -> Cleaned:
    """The text without what hides in it, with a count of it."""
    text, hidden = _HIDDEN.subn("", _NEWLINES.sub("\n", text))
    # Afterwards: a hidden character inside a token would have kept it from being found.
    text, control_tokens = _CONTROL_TOKEN.subn(lambda found: f"{found[0][0]} {found[0][1:]}", text)
    return Cleaned(text, hidden, control_tokens)


def has_hidden(text: str) -> bool:
    """Whether anything hides in a text."""
    return bool(_HIDDEN.search(text) or _CONTROL_TOKEN.search(text))

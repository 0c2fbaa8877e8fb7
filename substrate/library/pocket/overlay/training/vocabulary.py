"""The tokens of the pocket world: a fixed vocabulary, longest match first, nothing learnt.

A token is a piece of a line (`\\n x=x+`, `7`, `#`), so that a step of a trace is a handful of
tokens. `save_tokenizer` writes the same vocabulary as a Hugging Face tokenizer; `encode` is the
fast way to the same ids for whoever makes millions of them.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from training.programs import DOMAINS, NAMES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, END, UNKNOWN = "<pad>", "<eos>", "<unk>"
MARKERS = ("<propose>", "<deduce>", "<abduce>", "<induce>", "<choose>", "<ask>")
KEY = "\n<key>"
CHOICES = (" A", " B", " C", " D")

_LINE_STARTS = (
    # integers and bits
    *("x=x+", "x=x-", "x=x*2", "x=x//2", "x=99-x", "x=x%10*10+x//10"),
    *("x=x^", "x=x|", "x=x&", "x=31-x", "x=x>>1", "x=x*2%32", "x=x*2%32+x//16"),
    # sequences
    *("x=x[::-1]", "x=x[1:]+x[:1]", "x=x[-1:]+x[:-1]", "x=x[1:]", "x=x[:-1]", "x=x+x[:1]"),
    *("x=x[-1:]+x", "x=''.join(sorted(x))", "x='", "x=x+'", "x=x.replace('", "x=sorted(x)"),
    *("x=[", "x=x+[", "x=[v+1 for v in x]", "x=[v-1 for v in x]", "x=[9-v for v in x]"),
    *("x=[not v for v in x]", "x=x+[not x[0]]", "x=[v!=x[0] for v in x]"),
    "x=[v or x[-1] for v in x]",
)
TOKENS: tuple[str, ...] = (
    *(PAD, END, UNKNOWN, KEY),
    *MARKERS,
    *CHOICES,
    *DOMAINS,
    *"0123456789",
    *(f",{digit}" for digit in "0123456789"),
    *"abcde",
    *("True", "False", ",True", ",False"),
    *("#", "#'", "#[", "#0b", "\nf(", "\nf('", "\nf([", "\nf(0b"),
    *(")", "')", "])", "'", "]", "','", "'+x", "]+x"),
    *("\ndef f(x):", "\n return x"),
    # whole, so that what a name stands for is the token that follows it
    *(f"\ndef {name}(x):" for name in NAMES),
    *(f"\n x={name}(x)" for name in NAMES),
    *(f"\n {start}" for start in _LINE_STARTS),
)
IDS = {token: number for number, token in enumerate(TOKENS)}
PAD_ID, END_ID, UNKNOWN_ID = IDS[PAD], IDS[END], IDS[UNKNOWN]
# The special ones are no text.
PATTERN = "|".join(re.escape(token) for token in sorted(TOKENS[3:], key=len, reverse=True))
_ANY = re.compile(f"{PATTERN}|.", re.DOTALL)


def encode(text: str) -> list[int]:
    """Token ids of a text, without an end. Raises KeyError for a text outside the vocabulary."""
    return [IDS[token] for token in _ANY.findall(text)]


def save_tokenizer(folder: Path) -> "PreTrainedTokenizerFast":
    """Write the vocabulary as a Hugging Face tokenizer into the folder, and return it."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel(IDS, unk_token=UNKNOWN))
    words.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERN), behavior="isolated")
    words.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    tokenizer.save_pretrained(folder)
    return tokenizer

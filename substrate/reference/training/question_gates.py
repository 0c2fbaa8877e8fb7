"""The gates between a generator's completion and the questions that are asked.

    read_question(completion, document, "choice", checker, count=count, maximum=1024)

The generator names the right option by its letter, after its solution; from there on it is an
index. An answer in words is refused, and so is a letter that is also another option's text: where
the options are C, O, N and H, nobody knows what C means. Options are put in an order that depends
on what they say and nothing else.

What gates look for in words, they look for in English.
"""

import hashlib
import random
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from training.chunks import Count
from training.documents import Document
from training.embedded_json import last_object
from training.hidden_text import has_hidden, without_hidden
from training.question_prompts import FEWEST_OPTIONS, MOST_OPTIONS, choice_prompt, free_prompt
from training.questions import Kind, Question, Reason
from training.verify_answers import LETTERS, FreeFormChecker, boxed

# Letters and digits of an answer that does not stand in a question by chance.
LEAK_CHARACTERS = 4
NAMED_CHARACTERS = 2  # of another option: a question that names both leaks neither
UNIT_WORDS = 1  # words of a reference, which are its unit

_LETTER = re.compile(r"\(?([A-Za-z])(?:\s*[).:]\s*(.*))?", re.DOTALL)  # B, (B), B) and its text
_LABEL = re.compile(r"\(?([A-Z])[).:](?:\s+|$)")
_LISTED = re.compile(r"^[ \t]*\(?([A-H])[).:][ \t]", re.MULTILINE)
_LISTED_IN_LINE = re.compile(r"(?<!\w)([A-H])\)\s")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{3,}")
_RELATED = re.compile(
    r"\b(?i:all|none|both|any|neither|two|more than one) of (?i:the )?"
    r"(?i:(?:above|below|others?|other options|options|preceding|previous)\b|th[eo]se\.?$)"
    r"|\b(?i:above|previous|preceding) (?i:options?|answers?|choices?)\b"
    r"|\b(?i:options?|answers?|choices?) \(?[A-H]\b"
    r"|^(?i:both |only |neither |either )?\(?[A-H]\)?(?:, \(?[A-H]\)?)*,? (?i:and|or|nor|&) "
    r"\(?[A-H]\)?(?i: only)?\.?$"
)
_MENTION = re.compile(
    r"\b(?:the|this|that|these|given|provided|above|preceding|accompanying) (?:\w+ )?"
    r"(?:documents?|passages?|excerpts?|textbooks?|articles?|chapters?|texts?|snippets?)\b(?! of\b)"
    r"|\b(?:according to|based on|as per) (?:the|this|that|these) (?:\w+ )?"
    r"(?:sections?|paragraphs?|sources?|materials?|readings?|lectures?|notes?|pages?|authors?"
    r"|information|stud(?:y|ies))\b"
    r"|\b(?:in|from|of|by) (?:this|the above|the preceding|the previous) "
    r"(?:section|paragraph|reading|lecture|figure|table|page|example)\b"
    r"|\b(?:mentioned|described|stated|discussed|presented|shown|given|defined|listed|outlined"
    r"|explained|introduced) (?:above|earlier|previously)\b"
    r"|\bthe authors? (?:argues?|claims?|states?|suggests?|describes?|mentions?|says?|notes?"
    r"|points? out|uses?|gives?|explains?|proposes?)\b"
    r"|\b(?:fig\.|figure|table|eq\.|equation) \(?[0-9]"
)
_GIVEN_AWAY = re.compile(r"\\boxed|\b(?i:answer|option|choice)(?i: is| would be|:| =) ?\(?[A-H]\b")
_CALLED_RIGHT = re.compile(r"(?i)[(\[](?:correct|(?:correct |right )?answer)[)\]]|[\u2713\u2714]")


def read_question(
    completion: str,
    document: Document,
    kind: Kind,
    checker: FreeFormChecker,
    *,
    count: Count,
    maximum: int,
) -> Question | Reason:
    """The question that a completion ends with, or why there is none. The solver's prompt has at
    most `maximum` tokens.
    """
    found = last_object(completion, lambda found: _has_form(found, kind))
    if found is None:
        return "malformed"
    text = found["question"].strip()
    if not text:
        return "opt_out"
    options = _options(found["options"]) if kind == "choice" else ()
    said = found["answer"].strip()
    if any(has_hidden(part) for part in (text, said, *options)):
        return "hidden_characters"
    solution = _solution(found["steps"])
    if not solution:
        return "no_solution"
    keys = list(found)
    if keys.index("answer") < keys.index("steps"):
        return "answer_before_solution"
    prompt = choice_prompt(text, options) if kind == "choice" else free_prompt(text)
    if count(prompt) > maximum:
        return "too_long"
    if kind == "free":
        return _free(text, prompt, said, solution, document, checker)
    return _choice(text, options, said, solution, document, checker)


def _choice(
    text: str,
    options: Sequence[str],
    said: str,
    solution: str,
    document: Document,
    checker: FreeFormChecker,
) -> Question | Reason:
    if not FEWEST_OPTIONS <= len(options) <= MOST_OPTIONS or not all(options):
        return "invalid_options"
    if len({_bare(option) for option in options}) < len(options):
        return "duplicate_options"
    if any(_RELATED.search(option) for option in options):
        return "related_options"
    if _lists_options(text):
        return "options_in_question"
    index = _meant(said, options)
    if isinstance(index, str):
        return index
    others = [option for place, option in enumerate(options) if place != index]
    if any(_mentions_document(part) for part in (text, *options)):
        return "mentions_document"
    if any(_CALLED_RIGHT.search(option) for option in options):
        return "leaked_answer"
    if _leaks(text, options[index], others):
        return "leaked_answer"
    if _has_equal(options[index], others, checker):
        return "ambiguous_key"
    order = _order(text, options)
    shuffled = tuple(options[place] for place in order)
    return Question(
        kind="choice",
        text=text,
        prompt=choice_prompt(text, shuffled),
        options=shuffled,
        correct=order.index(index),
        reference=None,
        solution=solution,
        document=document.id,
    )


def _free(
    text: str, prompt: str, said: str, solution: str, document: Document, checker: FreeFormChecker
) -> Question | Reason:
    reference = boxed(said) or said
    if _mentions_document(text):
        return "mentions_document"
    if _leaks(text, reference, []):
        return "leaked_answer"
    # A checker reads the number in a sentence; which one an answer should have, nobody knows.
    is_sentence = len(_WORD.findall(_COMMAND.sub("", reference))) > UNIT_WORDS
    if not _has_content(reference) or is_sentence or not checker.readable(reference):
        return "unreadable_reference"
    return Question(
        kind="free",
        text=text,
        prompt=prompt,
        options=(),
        correct=None,
        reference=reference,
        solution=solution,
        document=document.id,
    )


def _has_form(found: dict[str, Any], kind: Kind) -> bool:
    """Whether an object is a question, or the refusal to write one."""
    text = found.get("question")
    if not isinstance(text, str):
        return False
    if not text.strip():
        return True
    if not _has_content(text):
        return False
    steps, options = found.get("steps"), found.get("options")
    return (
        isinstance(found.get("answer"), str)
        and (isinstance(steps, str) or _is_texts(steps))
        and (
            kind == "free"
            or _is_texts(options)
            or (isinstance(options, dict) and _is_texts(list(options.values())))
        )
    )


def _has_content(text: str) -> bool:
    """Whether a text is more than the ... that the request has in its place."""
    return any(sign.isalnum() for sign in text)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _options(found: list[str] | dict[str, str]) -> tuple[str, ...]:
    """The options without their letters, each in one line; none where the letters are not in
    order.
    """
    if isinstance(found, dict):
        if [letter.strip() for letter in found] != list(LETTERS[: len(found)]):
            return ()
        found = list(found.values())
    labels = [_LABEL.match(option.strip()) for option in found]
    if all(label and label[1] == LETTERS[place] for place, label in enumerate(labels[:26])):
        found = [_LABEL.sub("", option.strip(), count=1) for option in found]
    return tuple(" ".join(option.split()) for option in found)


def _solution(steps: str | list[str]) -> str:
    """The worked solution. It is kept for reading only: what hides in it is no reason to refuse."""
    return without_hidden(steps if isinstance(steps, str) else "\n".join(steps)).text.strip()


def _meant(said: str, options: Sequence[str]) -> int | Reason:
    """The index of the option that an answer names by its letter."""
    found = _LETTER.fullmatch(said)
    if not found or found[1].upper() not in LETTERS[: len(options)]:
        return "answer_not_an_option"
    letter, rest = found[1].upper(), found[2]
    index = LETTERS.index(letter)
    if rest and _bare(rest) != _bare(options[index]):
        return "ambiguous_key"
    alike = [place for place, text in enumerate(options) if text.strip("().").upper() == letter]
    return "ambiguous_key" if set(alike) - {index} else index


def _has_equal(key: str, others: Sequence[str], checker: FreeFormChecker) -> bool:
    """Whether another option has the value of the right one, or values cannot be compared."""
    spoiled = checker.spoiled
    for other in others:
        if _is_prose(key) or _is_prose(other):
            continue
        if checker.same(other, key) or checker.spoiled > spoiled:
            return True
    return False


def _is_prose(option: str) -> bool:
    return bool(_WORD.search(_COMMAND.sub("", option)))


def _lists_options(text: str) -> bool:
    in_line = set(_LISTED_IN_LINE.findall(text))
    return {"A", "B"} <= set(_LISTED.findall(text)) or {"A", "B", "C"} <= in_line


def _mentions_document(text: str) -> bool:
    return bool(_MENTION.search(" ".join(text.casefold().split())))


def _leaks(text: str, answer: str, others: Sequence[str]) -> bool:
    """Whether a question tells its answer, by a letter, as the answer, or as the only option."""
    said, answer = _bare(text).casefold(), _bare(answer).casefold()
    if _GIVEN_AWAY.search(text) or _names(said, f"answer is {answer}", 0):
        return True
    return _names(said, answer, LEAK_CHARACTERS) and not any(
        _names(said, _bare(other).casefold(), NAMED_CHARACTERS) for other in others
    )


def _names(said: str, what: str, characters: int) -> bool:
    """Whether a text has another as a word, one of so many letters and digits."""
    if sum(sign.isalnum() for sign in _COMMAND.sub("", what)) < characters:
        return False
    return re.search(rf"(?<![\w.]){re.escape(what)}(?!\w|\.\w)", said) is not None


def _order(text: str, options: Sequence[str]) -> list[int]:
    """Where each place's option comes from: a shuffle that depends on what is said alone."""
    order = sorted(range(len(options)), key=lambda place: options[place])
    content = "\0".join([text, *sorted(options)])
    random.Random(hashlib.sha256(content.encode()).digest()).shuffle(order)
    return order


def _bare(text: str) -> str:
    """A text without what only decorates it: spaces, dollar signs, fonts, a full stop."""
    text = re.sub(r"\*\*|\$|\\[,;:! ]", " ", unicodedata.normalize("NFC", text))
    return " ".join(text.split()).removesuffix(".").strip()

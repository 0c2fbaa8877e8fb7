"""The first programs: where teachers start from while the archive has none.

They are small and unlike one another, the identity first, which Absolute Zero (arXiv 2505.03335)
starts from alone; any task is better than they are.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class FirstProgram:
    program: str
    inputs: tuple[str, ...]  # the first is that of deduction and abduction, all are induction's
    hint: str


FIRST_PROGRAMS = (
    FirstProgram(
        "def f(a):\n    return a",
        (
            *("'Hello world'", "0", "-7", "2.5", "True", "None", "[1, 2, 3]", "('x', 'y')"),
            *("{'k': [1]}", "''"),
        ),
        "Nothing happens to what is given.",
    ),
    FirstProgram(
        """\
def f(numbers):
    totals, total = [], 0
    for number in numbers:
        total += number
        totals.append(total)
    return totals""",
        (
            *("[3, -1, 4, 1, -5]", "[]", "[7]", "[0, 0, 0]", "[1, 2, 3, 4]", "[-1, -1]"),
            *("[10, -10, 10]", "[100, 20, 3]", "[2, 2, 2, 2, 2]", "[5, -3]"),
        ),
        "What comes later knows of all that came before.",
    ),
    FirstProgram(
        """\
def f(text, step):
    moved = ''
    for letter in text:
        if letter.islower():
            moved += chr((ord(letter) - ord('a') + step) % 26 + ord('a'))
        else:
            moved += letter
    return moved""",
        (
            *("'zebra at 9', 2", "'abc', 1", "'abc', -1", "'xyz', 3", "'', 5", "'Hello', 13"),
            *("'a b c', 26", "'NO', 4", "'mm', 12", "'code', 30"),
        ),
        "An old way to write letters that not everybody should read.",
    ),
    FirstProgram(
        """\
def f(text):
    deepest, level = 0, 0
    for sign in text:
        if sign == '(':
            level += 1
            deepest = max(deepest, level)
        elif sign == ')':
            level -= 1
            if level < 0:
                return -1
    return deepest if level == 0 else -1""",
        (
            *("'(a(b)((c)))'", "''", "'abc'", "'()'", "'(('", "'())('", "'()()()'", "')'"),
            *("'((x)(y))'", "'(((('"),
        ),
        "It looks at parentheses only, and is strict about them.",
    ),
    FirstProgram(
        """\
def f(n):
    if n == 1:
        return [1]
    return [n] + f(n // 2 if n % 2 == 0 else 3 * n + 1)""",
        ("6", "1", "2", "3", "4", "5", "7", "8", "10", "12"),
        "A way down to one that is not always down.",
    ),
    FirstProgram(
        """\
class Shelf:
    def __init__(self, room):
        self.room = room
        self.books = []

    def put(self, book):
        if book in self.books:
            self.books.remove(book)
        self.books.insert(0, book)
        return self.books.pop() if len(self.books) > self.room else None


def f(books, room):
    shelf = Shelf(room)
    lost = [shelf.put(book) for book in books]
    return shelf.books, [book for book in lost if book is not None]""",
        (
            *("['a', 'b', 'a', 'c', 'd'], 2", "[], 3", "['a'], 0", "['a', 'a', 'a'], 1"),
            *("['x', 'y', 'z'], 3", "['x', 'y', 'z'], 2", "['x', 'y', 'x', 'z', 'y'], 2"),
            *("['p', 'q', 'p', 'q'], 1", "['a', 'b', 'c', 'a'], 3", "['m', 'n', 'o', 'p'], 1"),
        ),
        "There is room for some; the rest fall off, those first that were not touched for long.",
    ),
)

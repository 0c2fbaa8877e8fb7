"""Answers that are right in another form, and wrong ones that look right."""

from collections.abc import Iterator

import pytest

from training.verify_answers import FreeFormChecker, boxed, chosen_option, right_option


@pytest.fixture(scope="module")
def checker() -> Iterator[FreeFormChecker]:
    with FreeFormChecker(seconds=2) as checker:
        yield checker


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"first \boxed{1}, no, \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed {B}", "B"),
        (r"\boxed{\boxed{B}}", "B"),
        (r"\boxed{}", ""),
        (r"\boxed{\frac{1}{2}", None),  # cut off
        ("B", None),
        (r"\boxed B", None),
    ],
)
def test_the_answer_is_in_the_last_box(response: str, answer: str | None) -> None:
    assert boxed(response) == answer


OPTIONS = ["a mole", "a newt", "a toad", "a carp"]


@pytest.mark.parametrize(
    "said",
    [
        "B",
        "b",
        "(B)",
        "B)",
        "B.",
        "[B]",
        "$B$",
        "**B**",
        r"\text{B}",
        r"\textbf{(B)}",
        r"\mathrm{B}",
        "Option B",
        "answer: B",
        "\uff22",  # full width
        "B) a newt",
        "B: a newt",
        "(B) a newt",
        "a newt",
        "A newt.",
        r"\text{a newt}",
    ],
)
def test_an_option_may_be_boxed_in_many_ways(said: str) -> None:
    assert chosen_option(rf"So \boxed{{{said}}}", OPTIONS) == 1


@pytest.mark.parametrize(
    "said",
    [
        "All of the above",  # begins with an A
        "E",
        "A or B",
        "A, B",
        "AB",
        "Because it is wet",
        "A) a newt",  # the letter of one, the words of another
        "a newt or a toad",
        "",
        "1",
    ],
)
def test_what_is_no_option_is_none(said: str) -> None:
    assert chosen_option(rf"So \boxed{{{said}}}", OPTIONS) is None


def test_all_of_the_above_is_an_option_where_it_is_one() -> None:
    options = ["rain", "snow", "hail", "All of the above"]
    assert chosen_option(r"\boxed{All of the above}", options) == 3
    assert chosen_option(r"\boxed{D}", options) == 3
    assert chosen_option(r"\boxed{A}", options) == 0


def test_a_letter_is_a_letter_even_where_options_are_letters() -> None:
    options = ["C", "O", "N", "H"]  # the right answer, carbon, is option A
    assert right_option(r"\boxed{A}", options, correct=0) is True
    assert right_option(r"\boxed{C}", options, correct=0) is False  # C is nitrogen's letter
    # No option has the letter N, so it is nitrogen.
    assert right_option(r"\boxed{N}", options, correct=2) is True
    assert right_option(r"\boxed{(A) C}", options, correct=0) is True


def test_cobalt_is_not_carbon_monoxide() -> None:
    options = ["CO", "Co", "C", "O"]
    assert right_option(r"\boxed{Co}", options, correct=1) is True
    assert right_option(r"\boxed{CO}", options, correct=1) is False
    assert right_option(r"\boxed{co}", options, correct=1) is None  # either


def test_the_same_option_twice_is_not_chosen_by_its_words() -> None:
    assert chosen_option(r"\boxed{frog}", ["frog", "toad", "frog"]) is None
    assert chosen_option(r"\boxed{C}", ["frog", "toad", "frog"]) == 2


def test_no_box_is_no_answer() -> None:
    assert right_option("It is B.", OPTIONS, correct=1) is None


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        # Numbers
        ("0.5", r"\frac{1}{2}"),
        (r"\dfrac12", "1/2"),
        ("1,000", "1000"),
        ("1{,}000{,}000", "1000000"),
        ("2.50", "2.5"),
        ("-.5", "-1/2"),
        (r"50\%", "0.5"),
        (r"\sqrt{8}", r"2\sqrt{2}"),
        ("1+x^2", "x^2+1"),
        ("x=3", "3"),
        ("42.", "42"),
        ("$7$", "7"),
        # Units
        (r"5\text{ cm}", "5"),
        ("5 cm", r"5\,\mathrm{cm}"),
        ("5 kilometers", "5 km"),
        (r"9.8\ \text{m/s}^2", "9.8 m/s^2"),
        (r"90^\circ", "90"),
        ("90°", "90 degrees"),
        (r"\$12", "12"),
        # Sets and pairs
        (r"\{2, 1\}", r"\{1, 2\}"),
        ("{2, 1}", r"\{1, 2\}"),
        (r"\left\{1, \frac{1}{2}\right\}", r"\{0.5, 1\}"),
        ("(1, 2)", r"\left(1, 2\right)"),
        # Digits and signs of other scripts
        ("٣", "3"),
        ("\uff11\uff12", "12"),
        ("−5", "-5"),
        ("½", "0.5"),
        ("x²", "x^2"),
        ("2π", r"2\pi"),
        # Words
        ("paris", "Paris"),
        (r"\text{Paris}", "Paris"),
        ("New  York", "new york"),
        ("Co", "Co"),
        ("isle Of man", "Isle of Man"),
        ("yx", "xy"),
    ],
)
def test_the_same_value_in_another_form_is_right(
    checker: FreeFormChecker, answer: str, reference: str
) -> None:
    assert checker.same(answer, reference)


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("0.33", r"\frac{1}{3}"),
        ("1000", "100"),
        ("5 km", "5 m"),
        (r"5\text{ km}", r"5\text{ m}"),
        ("5 m/s", "5 m"),
        (r"\{1, 2\}", r"\{1, 2, 3\}"),
        ("1", r"\{1, 2\}"),
        ("(2, 1)", "(1, 2)"),
        ("[1, 2]", "(1, 2)"),
        ("x²", "2x"),
        ("5²", "52"),
        ("٣", "4"),
        ("CO", "Co"),
        ("OC", "CO"),  # not a product of two variables
        ("NACl", "NaCl"),
        ("Paris", "London"),
        ("", "1"),
        ("", ""),
        ("1/0", "1"),
        ("3" * 1000, "3" * 1000),
    ],
)
def test_another_value_is_wrong(checker: FreeFormChecker, answer: str, reference: str) -> None:
    assert not checker.same(answer, reference)


def test_a_response_is_right_by_what_it_boxes(checker: FreeFormChecker) -> None:
    assert checker.right(r"So \boxed{\frac{2}{4}}.", "0.5") is True
    assert checker.right(r"So \boxed{2}, or \boxed{3}.", "2") is False
    assert checker.right("So 0.5.", "0.5") is None


def test_only_mathematics_is_readable_as_such(checker: FreeFormChecker) -> None:
    assert checker.readable(r"\frac{x}{2}")
    assert checker.readable("12")
    assert not checker.readable("the mitochondrion")
    assert not checker.readable("")


def test_an_answer_without_end_is_wrong_and_the_next_one_is_read(checker: FreeFormChecker) -> None:
    assert checker.spoiled == 0  # by the answers of the tests before
    assert not checker.same("9^{9^{9^{9}}}", "9^{9^{9^{8}}}")
    assert checker.spoiled == 1
    assert checker.same(r"\sqrt{8}", r"2\sqrt{2}")

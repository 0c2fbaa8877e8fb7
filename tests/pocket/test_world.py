"""The pocket world: its interpreter, formats, strict rewards, split, vocabulary and base model."""

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import make_data
import mixture
import pretrain
import pytest
import torch
import training.pocket as pocket
import training.programs as programs
from training.programs import DOMAINS, BadProgram, Program, run, side, spell
from training.vocabulary import END_ID, TOKENS, encode, save_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

POCKET = Path(__file__).parents[2] / "substrate" / "library" / "pocket"
SETS = {name: POCKET / path for name, (path, _, _) in make_data.SETS.items()}
MOST_BYTES = 8 * 2**20

Key = tuple[tuple[str, ...], str]


@pytest.mark.parametrize(
    ("domain", "start", "lines", "values"),
    [
        ("integers", 5, ("x=x+7", "x=x*2", "x=99-x", "x=x%10*10+x//10"), [12, 24, 75, 57]),
        ("integers", 57, ("x=x//2", "x=x-9"), [28, 19]),
        ("strings", "eeb", ("x='d'+x", "x=x[::-1]"), ["deeb", "beed"]),
        ("strings", "beed", ("x=x.replace('e','a')",), ["baad"]),
        ("strings", "cab", ("x=''.join(sorted(x))", "x=x+x[:1]"), ["abc", "abca"]),
        ("strings", "abca", ("x=x[1:]",), ["bca"]),
        ("strings", "abc", ("x=x[1:]+x[:1]", "x=x[-1:]+x", "x=x[:-1]"), ["bca", "abca", "abc"]),
        ("lists", [3, 1], ("x=x+[2]", "x=sorted(x)"), [[3, 1, 2], [1, 2, 3]]),
        ("lists", [1, 2, 3], ("x=[9-v for v in x]",), [[8, 7, 6]]),
        ("lists", [3, 1], ("x=[v+1 for v in x]", "x=[7]+x"), [[4, 2], [7, 4, 2]]),
        (
            "booleans",
            [True, False],
            ("x=[not v for v in x]", "x=x+[not x[0]]", "x=[v!=x[0] for v in x]"),
            [[False, True], [False, True, True], [False, True, True]],
        ),
        ("booleans", [False, True], ("x=[v or x[-1] for v in x]",), [[True, True]]),
        ("bits", 0b00110, ("x=x^5", "x=x|8", "x=x&9"), [0b00011, 0b01011, 0b01001]),
        ("bits", 0b10010, ("x=x*2%32", "x=31-x", "x=x>>1"), [0b00100, 0b11011, 0b01101]),
        ("bits", 0b10010, ("x=x*2%32+x//16",), [0b00101]),
    ],
)  # fmt: skip
def test_the_interpreter_agrees_with_programs_worked_by_hand(
    domain: str, start: Any, lines: tuple[str, ...], values: list[Any]
) -> None:
    assert run(Program(domain, lines), start) == [start, *values]


def test_the_interpreter_agrees_with_python_itself() -> None:
    dice = random.Random(1)
    for domain, depth in itertools.product(DOMAINS, (1, 3, 8, 16)):
        for _ in range(10):
            program, value = programs.draw_problem(dice, domain, depth)
            names: dict[str, Any] = {}
            exec(programs.source(program), names)
            assert names["f"](value) == run(program, value)[-1]


def test_python_itself_agrees_about_a_composition_of_quoted_definitions() -> None:
    dice = random.Random(2)
    for domain in DOMAINS:
        _, program, value = pocket.draw_asked(dice, domain, 3)
        names: dict[str, Any] = {}
        exec(programs.source(program), names)
        assert names["f"](value) == run(program, value)[-1]


@pytest.mark.parametrize(
    ("domain", "line", "value"),
    [("integers", "x=x*2", 50), ("integers", "x=x-9", 8), ("strings", "x=x[1:]", "ab"),
     ("lists", "x=[v+1 for v in x]", [9, 1]), ("booleans", "x=x+x[:1]", [True] * 5)],
)  # fmt: skip
def test_a_value_that_leaves_its_domain_is_refused(domain: str, line: str, value: Any) -> None:
    with pytest.raises(BadProgram, match=f"wanted a value of {domain}"):
        run(Program(domain, (line,)), value)


def test_a_line_of_another_domain_is_refused() -> None:
    with pytest.raises(BadProgram, match="wanted a line of bits"):
        run(Program("bits", ("x=x*2",)), 3)


def test_a_program_that_comes_back_to_a_value_is_not_sound() -> None:
    assert programs.is_sound(Program("integers", ("x=x+1", "x=x+2")), 3)
    assert not programs.is_sound(Program("integers", ("x=x+2", "x=x-2")), 3)
    assert not programs.is_sound(Program("strings", ("x=x[::-1]",)), "aba")


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("format", pocket.FORMATS)
def test_the_answer_of_every_format_is_rewarded_and_any_other_is_not(
    format: str, domain: str
) -> None:
    dice = random.Random(f"{format}{domain}")
    for depth in (1, 2) if format == "induce" else (1, 4, 9):
        problem, other = (pocket.draw(dice, format, domain, depth) for _ in range(2))
        assert problem["depth"] == depth
        assert pocket.reward(problem, problem["answer"]) == 1.0
        assert pocket.reward(problem, "") == 0.0
        if other["answer"] != problem["answer"] and format != "induce":  # two may do the same
            assert pocket.reward(problem, other["answer"]) == 0.0


@pytest.mark.parametrize("domain", DOMAINS)
def test_proposals_and_questions_are_read_back(domain: str) -> None:
    dice = random.Random(domain)
    program, value = programs.draw_problem(dice, domain, 5)
    assert pocket.read_proposal(domain, pocket.propose(program, value)["answer"]) == (
        program,
        value,
    )
    document, program, value = pocket.draw_asked(dice, domain, 3)
    asked = pocket.ask(document, program, value)
    key = pocket.trace(program, value)
    assert pocket.read_asked(asked["prompt"], asked["answer"]) == (program, value, key)
    assert pocket.read_asked("<ask>", asked["answer"]) is None  # quoted from nowhere


TRACE = "\n x=x+7#12\n x=x*2#24\n return x#24"


@pytest.mark.parametrize(
    "wrong",
    [
        "\n return x#24",  # the result alone
        "\n x=x+7#13\n x=x*2#24\n return x#24",  # right in the end, by luck
        "\n x=x*2#12\n x=x+7#24\n return x#24",  # another order of lines
        "\n x=x+7#12\n x=x*2#24\n return x#25",
        "\n x=x+7#12\n x=x*2#24",
        TRACE + "\n return x#24",
        " " + TRACE,
    ],
)
def test_only_the_true_trace_is_rewarded(wrong: str) -> None:
    problem = pocket.deduce(Program("integers", ("x=x+7", "x=x*2")), 5)
    assert problem["answer"] == TRACE
    assert pocket.reward(problem, TRACE) == 1.0
    assert pocket.reward(problem, wrong) == 0.0


def test_the_trace_of_a_composition_shows_what_each_call_stands_for() -> None:
    program = Program("integers", ("x=ka(x)", "x=lo(x)"), (("ka", "x=x+7"), ("lo", "x=x*2")))
    assert pocket.deduce(program, 5)["answer"] == (
        "\n x=ka(x)\n x=x+7#12\n x=lo(x)\n x=x*2#24\n return x#24"
    )


def test_a_choice_needs_the_trace_and_the_right_one_of_four_different_letters() -> None:
    dice = random.Random(3)
    problem = pocket.choose(Program("integers", ("x=x+7", "x=x*2")), 5, dice)
    shown = problem["prompt"].split("f(5)#")[1].split("#")
    options = {option[-1]: option[:-2] for option in shown}
    letter = next(letter for letter, value in options.items() if value == "24")
    assert len(set(options.values())) == 4
    assert problem["answer"] == f"{TRACE} {letter}"
    for other in "ABCD":
        assert pocket.reward(problem, f"{TRACE} {other}") == float(other == letter)
    assert pocket.reward(problem, f" {letter}") == 0.0


def test_abduction_accepts_any_input_that_gives_the_output() -> None:
    problem = pocket.abduce(Program("integers", ("x=x+1", "x=x//2")), 5)  # 6, 3
    assert pocket.reward(problem, "\n x=x//2#6\n x=x+1#5\nf(5)") == 1.0
    assert pocket.reward(problem, "\n x=x//2#7\n x=x+1#6\nf(6)") == 1.0
    assert pocket.reward(problem, "\n x=x//2#8\n x=x+1#7\nf(7)") == 0.0
    assert pocket.reward(problem, "\n x=x//2#6\n x=x+1#5\nf(6)") == 0.0
    assert pocket.reward(problem, "\nf(5)") == 0.0
    assert pocket.reward(problem, "\n x=x//2#6\n x=x+1#5\nf(99)") == 0.0


def test_induction_is_judged_on_hidden_inputs() -> None:
    pairs = "\nf(10)#13\nf(20)#23\nf(30)#33\nf(40)#43"
    problem = {
        "domain": "integers",
        "prompt": f"<induce>{pairs}",
        "answer": "\ndef f(x):\n x=x+3\n return x",
    }
    assert pocket.reward(problem, "\ndef f(x):\n x=x+1\n x=x+2\n return x") == 1.0
    # Right on the pairs shown (their last digit is 0), and on few others.
    crafty = "\ndef f(x):\n x=x//2\n x=x*2\n x=x+3\n return x"
    assert pocket.reward(problem, crafty) == 0.0
    assert pocket.reward(problem, "\ndef f(x):\n x=eval('x+3')\n return x") == 0.0


@pytest.mark.parametrize(
    ("completion", "why"),
    [
        ("03\ndef f(x):\n x=x+7\n x=x*2\n return x\nf(5)", "another depth than declared"),
        ("02\ndef f(x):\n x=x+7\n x=x-7\n return x\nf(5)", "not sound"),
        ("02\ndef f(x):\n x=x+7\n x=x*2\n return x\nf(60)", "leaves the domain"),
        ("02\ndef f(x):\n x=x+7\n x=[v for v in x]\n return x\nf(5)", "no such line"),
        ("02\ndef f(x):\n x=x+7\n x=x*2\n return x", "no input"),
        ("02\ndef f(x):\n x=x[1:]\n x=x[::-1]\n return x\nf('abc')", "another domain"),
    ],
)
def test_a_proposal_that_is_not_valid_is_refused(completion: str, why: str) -> None:
    assert pocket.read_proposal("integers", completion) is None, why


@pytest.mark.parametrize("held_out", programs.HELD_OUT)
def test_a_proposal_from_a_held_out_side_is_refused(held_out: str) -> None:
    program, value = programs.draw_problem(random.Random(4), "integers", 2, held_out)
    assert pocket.read_proposal("integers", pocket.propose(program, value)["answer"]) is None


def test_a_problem_keeps_its_side_whatever_its_definitions_are_called() -> None:
    plain = Program("integers", ("x=x+7", "x=x*2"))
    for one, two in (("ka", "lo"), ("ri", "ka")):
        lines = (f"x={one}(x)", f"x={two}(x)")
        quoted = Program("integers", lines, ((two, "x=x*2"), (one, "x=x+7")))
        assert all(side(plain, x) == side(quoted, x) for x in range(40))


def test_the_four_sets_are_disjoint_and_each_lies_on_its_side() -> None:
    keys = {name: [_key(row) for row in _rows(name)] for name in SETS}
    for name, own in keys.items():
        assert len(set(own)) == len(own)
        for row in _rows(name):
            assert side(*_program_and_input(row)) == name
            assert pocket.reward(row, row["answer"]) == 1.0
    for one, other in itertools.combinations(keys, 2):
        assert not set(keys[one]) & set(keys[other])


def test_pretraining_draws_share_no_problem_with_any_set() -> None:
    held_out = {_key(row) for name in SETS for row in _rows(name)}
    dice = random.Random(5)
    drawn: Counter[str] = Counter()
    shown: set[Key] = set()
    for _ in range(20_000):
        ids, _ = mixture.draw_example(dice, 0.9)
        text = "".join(TOKENS[token] for token in ids if token != END_ID)
        drawn[text[: text.index(">") + 1]] += 1
        shown |= _keys_in(text)
    assert len(drawn) == 6  # every format is among them
    assert len(shown) > 12_000
    assert not shown & held_out


def test_the_sets_are_those_that_their_program_writes(tmp_path: Path) -> None:
    make_data.write_all(tmp_path)
    for path in SETS.values():
        assert (tmp_path / path.relative_to(POCKET)).read_bytes() == path.read_bytes()


def test_external_asks_for_other_domains_and_depths_than_dev() -> None:
    dev, external = (_rows(name) for name in ("dev", "external"))
    for key, least in (("domain", 0.25), ("depth", 0.1)):
        shares = [Counter(row[key] for row in rows) for rows in (dev, external)]
        kinds = shares[0] | shares[1]
        distance = sum(abs(shares[0][k] / len(dev) - shares[1][k] / len(external)) for k in kinds)
        assert distance / 2 >= least, key


def test_the_tokenizer_is_the_vocabulary(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == len(set(TOKENS)) == len(TOKENS) < 128
    dice = random.Random(6)
    for format, domain in itertools.product((*pocket.FORMATS, "propose", "ask"), DOMAINS):
        problem = pocket.draw(dice, format, domain, 2)
        text = problem["prompt"] + problem["answer"]
        ids = tokenizer(text)["input_ids"]
        assert ids == encode(text)
        assert encode(problem["prompt"]) + encode(problem["answer"]) == ids
        assert tokenizer.decode([*ids, END_ID], skip_special_tokens=True) == text
    assert tokenizer("f(x)=é")["input_ids"].count(tokenizer.unk_token_id) > 0


def test_the_base_loads_offline_is_solid_to_depth_four_and_has_its_frontier_at_six() -> None:
    folder = POCKET / "base"
    assert sum(file.stat().st_size for file in folder.iterdir()) <= MOST_BYTES
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    names = {name.split(".")[-1] for name, _ in model.named_modules()}
    assert {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"} <= names
    assert 200_000 <= sum(weight.numel() for weight in model.parameters()) <= 500_000

    dice = random.Random(8)
    problems = [
        pocket.draw(dice, "deduce", domain, depth, programs.FRESH)
        for domain, depth in itertools.product(DOMAINS, (2, 4, 6, 10))
        for _ in range(8)
    ]
    inputs = tokenizer([p["prompt"] for p in problems], return_tensors="pt", padding=True)
    greedy = GenerationConfig(
        do_sample=False,
        max_new_tokens=120,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.inference_mode():
        ids = model.generate(  # pyright: ignore[reportAttributeAccessIssue]
            **inputs, generation_config=greedy
        )[:, inputs["input_ids"].shape[1] :]
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    solved = dict.fromkeys((2, 4, 6, 10), 0.0)
    for problem, text in zip(problems, texts, strict=True):
        solved[problem["depth"]] += pocket.reward(problem, text) / 40
    assert min(solved[2], solved[4]) >= 0.95
    assert 0.1 < solved[6] < 0.7
    assert solved[10] == 0


@pytest.mark.slow
def test_pretraining_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    two = 2 * pretrain.BLOCK
    pretrain.pretrain(tmp_path / "whole", seed=3, steps=two, until=two, threads=1)
    for until in (pretrain.BLOCK, two):
        pretrain.pretrain(tmp_path / "parts", seed=3, steps=two, until=until, threads=1)
    whole, parts = (tmp_path / name / "base/model.safetensors" for name in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in SETS[name].read_text(encoding="utf-8").splitlines()]


def _program_and_input(row: dict[str, Any]) -> tuple[Program, Any]:
    return pocket.read_question(row["prompt"].removeprefix("<deduce>"))


def _key(row: dict[str, Any]) -> Key:
    program, value = _program_and_input(row)
    return program.inlined, spell(program.domain, value)


def _keys_in(text: str) -> set[Key]:
    """Every problem that a pretraining text shows, read with this test's own eyes."""
    text = text.split(">", 1)[1]
    functions: dict[str, tuple[str, ...]] = {}

    def calls_of(names: Iterable[str]) -> set[str]:
        return {f"{name}(x)" for name in names}

    for block in text.split("\ndef ")[1:]:
        name, _, body = block.partition("(x):")
        body = body.split("\n return x")[0]
        lines = tuple(line for line in body.split("\n ") if line)
        functions[name] = tuple(
            inner
            for line in lines
            for inner in (functions[line[2:4]] if line[2:] in calls_of(functions) else (line,))
        )
    calls = [part.split(")")[0] for part in text.split("\nf(")[1:]]
    return {(functions["f"], call) for call in calls} if "f" in functions else set()

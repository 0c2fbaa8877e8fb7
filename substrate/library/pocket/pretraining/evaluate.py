"""Measures a pocket base model: per domain and depth, greedy and pass@k, and with forced traces.

    python substrate/library/pocket/pretraining/evaluate.py [--base FOLDER] [--problems 40]

Problems are of the fresh side, which pretraining never sees and no set is drawn from (`induce`: new
draws of the training side). Printed as JSON: `deduce` by domain and depth (greedy, the mean over
samples at temperature 1, pass@k, and `forced`: greedy with the source of the first step given, what
a switch into tracing could be worth), the other formats, `proposals` and `questions` (how many are
valid, how deep they are, how many keys are right).
"""

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3ForCausalLM

POCKET = Path(__file__).resolve().parent.parent
REFERENCE = POCKET.parents[1] / "reference"
sys.path[:0] = [str(POCKET / "overlay"), str(REFERENCE)]

from training.pocket import (  # noqa: E402
    Problem,
    deduce,
    draw,
    draw_asked,
    read_asked,
    read_proposal,
    reward,
    trace,
)
from training.programs import DOMAINS, FRESH, TRAINING, definitions_source  # noqa: E402
from training.vocabulary import END_ID, TOKENS, encode  # noqa: E402

from training.sampling import sample  # noqa: E402
from training.weights import Weights, pack  # noqa: E402

DEPTHS = range(1, 9)
SAMPLES = 8  # of pass@k
SEED = 7
BATCH = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", type=Path, default=POCKET / "base")
    parser.add_argument("--problems", type=int, default=40, help="for each domain and depth")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = Qwen3ForCausalLM.from_pretrained(arguments.base, dtype=torch.float32).eval()
    print(json.dumps(evaluate(pack(model), arguments.problems), indent=1))


def evaluate(weights: Weights, count: int) -> dict[str, Any]:
    dice, noise = random.Random(SEED), torch.Generator().manual_seed(SEED)
    problems = [
        draw(dice, "deduce", domain, depth, FRESH)
        for depth in DEPTHS
        for domain in DOMAINS
        for _ in range(count)
    ]
    greedy = rewards(weights, problems, 0.0, noise)
    sampled = rewards(weights, [p for p in problems for _ in range(SAMPLES)], 1.0, noise)
    passed = [
        float(any(sampled[start : start + SAMPLES])) for start in range(0, len(sampled), SAMPLES)
    ]
    averaged = [
        sum(sampled[start : start + SAMPLES]) / SAMPLES for start in range(0, len(sampled), SAMPLES)
    ]
    forced = rewards(weights, problems, 0.0, noise, forced=True)
    report: dict[str, Any] = {"deduce": {}, "formats": {}}
    for name, values in (
        ("greedy", greedy),
        ("sampled", averaged),
        (f"pass@{SAMPLES}", passed),
        ("forced", forced),
    ):
        table = {domain: by_depth(problems, values, domain) for domain in DOMAINS}
        report["deduce"][name] = {"all": by_depth(problems, values, None), **table}
    for format in ("quoted", "choose", "abduce", "induce"):
        depths = (1, 2) if format == "induce" else range(1, 7)
        drawn = [
            _draw(dice, format, domain, depth)
            for depth in depths
            for domain in DOMAINS
            for _ in range(count // 2)
        ]
        report["formats"][format] = by_depth(drawn, rewards(weights, drawn, 0.0, noise), None)
    report["proposals"] = proposals(weights, 50 * count, noise)
    report["questions"] = questions(weights, dice, 4 * count, noise)
    return report


def by_depth(problems: list[Problem], values: list[float], domain: str | None) -> dict[int, float]:
    """The mean by depth, of one domain or of all."""
    means = {}
    for depth in sorted({problem["depth"] for problem in problems}):
        chosen = [
            value
            for problem, value in zip(problems, values, strict=True)
            if problem["depth"] == depth and domain in (None, problem["domain"])
        ]
        means[depth] = round(sum(chosen) / len(chosen), 3)
    return means


def rewards(
    weights: Weights,
    problems: list[Problem],
    temperature: float,
    noise: torch.Generator,
    forced: bool = False,
) -> list[float]:
    """The reward of one completion for each problem. Forced: its first step's line is given."""
    prompts, starts = [], []
    for problem in problems:
        start = problem["answer"].split("#")[0] if forced else ""
        starts.append(start)
        prompts.append(problem["prompt"] + start)
    limits = [2 * len(encode(problem["answer"])) + 4 for problem in problems]
    texts = complete(weights, prompts, limits, temperature, noise)
    return [
        reward(problem, start + text)
        for problem, start, text in zip(problems, starts, texts, strict=True)
    ]


def proposals(weights: Weights, count: int, noise: torch.Generator) -> dict[str, Any]:
    """Share of valid proposals, and how deep those are."""
    domains = [DOMAINS[index % len(DOMAINS)] for index in range(count)]
    texts = complete(
        weights, [f"<propose>{domain}" for domain in domains], [160] * count, 1.0, noise
    )
    read = [read_proposal(domain, text) for domain, text in zip(domains, texts, strict=True)]
    declared = sum(text[:2].isdecimal() and int(text[:2]) >= 5 for text in texts)
    report = _written([pair[0].depth for pair in read if pair], count)
    return report | {"declared>=5": round(declared / count, 4)}


def questions(
    weights: Weights, dice: random.Random, count: int, noise: torch.Generator
) -> dict[str, Any]:
    """Share of valid questions about documents, how deep those are, and how many keys are right."""
    prompts = []
    for index in range(count):
        document, _, _ = draw_asked(dice, DOMAINS[index % len(DOMAINS)], 2)
        prompts.append("<ask>" + definitions_source(document))
    texts = complete(weights, prompts, [300] * count, 1.0, noise)
    read = [read_asked(prompt, text) for prompt, text in zip(prompts, texts, strict=True)]
    asked = [item for item in read if item]
    keyed = sum(key == trace(program, value) for program, value, key in asked)
    report = _written([program.depth for program, _, _ in asked], count)
    return report | {"key_right": round(keyed / max(1, len(asked)), 3)}


def complete(
    weights: Weights,
    prompts: list[str],
    limits: list[int],
    temperature: float,
    dice: torch.Generator,
) -> list[str]:
    """One completion a prompt, up to its end or about its limit of tokens."""
    order = sorted(range(len(prompts)), key=lambda index: (limits[index], len(prompts[index])))
    texts = [""] * len(prompts)
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        completions = sample(
            weights,
            [encode(prompts[index]) for index in batch],
            end=END_ID,
            max_tokens=max(limits[index] for index in batch),
            temperature=temperature,
            generator=dice,
        )
        for index, completion in zip(batch, completions, strict=True):
            texts[index] = "".join(TOKENS[token] for token in completion.tokens if token != END_ID)
    return texts


def _draw(dice: random.Random, format: str, domain: str, depth: int) -> Problem:
    if format == "quoted":
        _, program, value = draw_asked(dice, domain, depth, FRESH)
        return deduce(program, value)
    return draw(dice, format, domain, depth, TRAINING if format == "induce" else FRESH)


def _written(depths: list[int], count: int) -> dict[str, Any]:
    shares = {depth: round(n / len(depths), 4) for depth, n in sorted(Counter(depths).items())}
    deep = round(sum(share for depth, share in shares.items() if depth >= 5), 4)
    return {"valid": round(len(depths) / count, 3), "depth>=5": deep, "depths": shares}


if __name__ == "__main__":
    main()

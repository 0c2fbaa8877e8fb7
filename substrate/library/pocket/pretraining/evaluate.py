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
from transformers.cache_utils import DynamicCache

POCKET = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(POCKET / "overlay")]

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
from training.vocabulary import END_ID, PAD_ID, TOKENS, encode  # noqa: E402

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
    print(json.dumps(evaluate(model, arguments.problems), indent=1))


def evaluate(model: Qwen3ForCausalLM, count: int) -> dict[str, Any]:
    dice = random.Random(SEED)
    torch.manual_seed(SEED)
    problems = [
        draw(dice, "deduce", domain, depth, FRESH)
        for depth in DEPTHS
        for domain in DOMAINS
        for _ in range(count)
    ]
    greedy = rewards(model, problems, 0.0)
    sampled = rewards(model, [p for p in problems for _ in range(SAMPLES)], 1.0)
    passed = [
        float(any(sampled[start : start + SAMPLES])) for start in range(0, len(sampled), SAMPLES)
    ]
    averaged = [
        sum(sampled[start : start + SAMPLES]) / SAMPLES for start in range(0, len(sampled), SAMPLES)
    ]
    forced = rewards(model, problems, 0.0, forced=True)
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
        report["formats"][format] = by_depth(drawn, rewards(model, drawn, 0.0), None)
    report["proposals"] = proposals(model, 50 * count)
    report["questions"] = questions(model, dice, 4 * count)
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
    model: Qwen3ForCausalLM, problems: list[Problem], temperature: float, forced: bool = False
) -> list[float]:
    """The reward of one completion for each problem. Forced: its first step's line is given."""
    prompts, starts = [], []
    for problem in problems:
        start = problem["answer"].split("#")[0] if forced else ""
        starts.append(start)
        prompts.append(problem["prompt"] + start)
    limits = [2 * len(encode(problem["answer"])) + 4 for problem in problems]
    texts = complete(model, prompts, limits, temperature)
    return [
        reward(problem, start + text)
        for problem, start, text in zip(problems, starts, texts, strict=True)
    ]


def proposals(model: Qwen3ForCausalLM, count: int) -> dict[str, Any]:
    """Share of valid proposals, and how deep those are."""
    domains = [DOMAINS[index % len(DOMAINS)] for index in range(count)]
    texts = complete(model, [f"<propose>{domain}" for domain in domains], [160] * count, 1.0)
    read = [read_proposal(domain, text) for domain, text in zip(domains, texts, strict=True)]
    declared = sum(text[:2].isdecimal() and int(text[:2]) >= 5 for text in texts)
    report = _written([pair[0].depth for pair in read if pair], count)
    return report | {"declared>=5": round(declared / count, 4)}


def questions(model: Qwen3ForCausalLM, dice: random.Random, count: int) -> dict[str, Any]:
    """Share of valid questions about documents, how deep those are, and how many keys are right."""
    prompts = []
    for index in range(count):
        document, _, _ = draw_asked(dice, DOMAINS[index % len(DOMAINS)], 2)
        prompts.append("<ask>" + definitions_source(document))
    texts = complete(model, prompts, [300] * count, 1.0)
    read = [read_asked(prompt, text) for prompt, text in zip(prompts, texts, strict=True)]
    asked = [item for item in read if item]
    keyed = sum(key == trace(program, value) for program, value, key in asked)
    report = _written([program.depth for program, _, _ in asked], count)
    return report | {"key_right": round(keyed / max(1, len(asked)), 3)}


@torch.inference_mode()
def complete(
    model: Qwen3ForCausalLM, prompts: list[str], limits: list[int], temperature: float
) -> list[str]:
    """One completion a prompt; prompts of one length share a batch, so there is no padding."""
    ids = [encode(prompt) for prompt in prompts]
    order = sorted(range(len(ids)), key=lambda index: (len(ids[index]), limits[index]))
    texts = [""] * len(ids)
    while order:
        batch = [index for index in order[:BATCH] if len(ids[index]) == len(ids[order[0]])]
        order = order[len(batch) :]
        done = _decode(
            model,
            torch.tensor([ids[index] for index in batch]),
            max(limits[index] for index in batch),
            temperature,
        )
        for index, tokens in zip(batch, done, strict=True):
            texts[index] = "".join(TOKENS[token] for token in tokens)
    return texts


def _decode(
    model: Qwen3ForCausalLM, ids_B_T: torch.Tensor, limit: int, temperature: float
) -> list[list[int]]:
    """Tokens up to the end of each row; rows that have ended are dropped as they get many."""
    cache = DynamicCache(config=model.config)
    rows = torch.arange(len(ids_B_T))
    done: list[list[int]] = [[] for _ in rows]
    step_B_T = ids_B_T
    for _ in range(limit):
        logits_B_V = model(step_B_T, past_key_values=cache, logits_to_keep=1).logits[:, -1]
        logits_B_V[:, PAD_ID] = -torch.inf
        if temperature:
            next_B = torch.multinomial(torch.softmax(logits_B_V / temperature, -1), 1)[:, 0]
        else:
            next_B = logits_B_V.argmax(-1)
        going = next_B != END_ID
        for row, token in zip(rows[going].tolist(), next_B[going].tolist(), strict=True):
            done[row].append(token)
        if not going.any():
            break
        if not going.all():
            cache.batch_select_indices(going.nonzero()[:, 0])
            rows, next_B = rows[going], next_B[going]
        step_B_T = next_B[:, None]
    return done


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

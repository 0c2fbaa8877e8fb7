"""Influence of many questions from one backward, against one backward for each question."""

import json
import resource
import subprocess
import sys
import time
from typing import Any

from tests.benchmarks._pocket import POCKET, REFERENCE

QUESTIONS = (16, 64, 256)
ANSWERS = 8
TOKENS = 24  # of an answer
DEPTHS = range(3, 6)
# Questions in a forward and a backward.
WAYS = {"one by one": 1, "16 a pass": 16, "one pass": max(QUESTIONS)}

WHAT = (
    f"Preconditioned cosines of questions with {ANSWERS} answers of {TOKENS} random tokens, to "
    f"target problems of depths {DEPTHS[0]} to {DEPTHS[-1]}, of the pocket base with LoRA of rank "
    "16 on all seven projections, float32, one thread. One by one: a forward and a backward for "
    "each question; otherwise for 16, or for all at once, one row an answer, padded to one length. "
    "Each way in a process of its own; memory is the process's peak above what it had before. "
    "The largest difference is that of scores found one by one and in one pass."
)


def run() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for questions in QUESTIONS:
        scores = {}
        for way in WAYS:
            command = [sys.executable, "-m", "tests.benchmarks.influence", way, str(questions)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            found = json.loads(output)
            scores[way] = found.pop("scores")
            for figure, value in found.items():
                figures[f"{questions} questions, {way}, {figure}"] = value
        pairs = zip(scores["one by one"], scores["one pass"], strict=True)
        figures[f"{questions} questions, largest score"] = max(map(abs, scores["one by one"]))
        figures[f"{questions} questions, largest difference"] = max(abs(a - b) for a, b in pairs)
    return figures


def _one_way(way: str, questions: int) -> dict[str, Any]:
    sys.path.insert(0, str(REFERENCE))
    import torch
    from peft import LoraConfig, get_peft_model
    from torch import Tensor
    from transformers import AutoTokenizer, Qwen3ForCausalLM

    from training.influence import SecondMoment, adamw_direction, influence, preconditioned_cosine
    from training.loss import token_logprobs
    from training.question_gradients import MicroBatch, lora_factors

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dice = torch.Generator().manual_seed(0)
    base = Qwen3ForCausalLM.from_pretrained(POCKET / "base", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(POCKET / "base")
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    lora = LoraConfig(r=16, lora_alpha=32, target_modules=names, init_lora_weights=False)
    model = get_peft_model(base, lora)
    factors = lora_factors(model)
    target = {n: torch.randn(f.shape, generator=dice) for n, f in factors.items()}
    values = {n: 1e-6 * torch.rand(f.shape, generator=dice) for n, f in factors.items()}
    moment = SecondMoment(values, steps=5, beta2=0.999, epsilon=1e-8)

    # An answer: its question, token ids, and the weight of each token.
    answers: list[tuple[int, list[int], list[float]]] = []
    lines = (POCKET / "data" / "target.jsonl").read_text(encoding="utf-8").splitlines()
    problems = [problem for line in lines if (problem := json.loads(line))["depth"] in DEPTHS]
    for question in range(questions):
        prompt = tokenizer(problems[question % len(problems)]["prompt"])["input_ids"]
        for weight in torch.randn(ANSWERS, generator=dice).tolist():
            said = torch.randint(2, base.config.vocab_size, (TOKENS,), generator=dice).tolist()
            weights = [0.0] * len(prompt) + [weight / (ANSWERS * TOKENS)] * TOKENS
            answers.append((question, prompt + said, weights))

    def batch_of(answers: list[tuple[int, list[int], list[float]]]) -> MicroBatch:
        width = max(len(ids) for _, ids, _ in answers)
        rows = [(ids, weights, [-1] * (width - len(ids))) for _, ids, weights in answers]
        ids_B_T = torch.tensor([ids + [0] * len(padding) for ids, _, padding in rows])
        weights_B_T = torch.tensor([weights + [0.0] * len(padding) for _, weights, padding in rows])
        owners = [[question] * len(ids) for question, ids, _ in answers]
        questions_B_T = torch.tensor(
            [own + padding for own, (_, _, padding) in zip(owners, rows, strict=True)]
        )

        def loss() -> Tensor:
            # Padding on the right needs no mask: what comes before does not see it.
            logits_B_T_V = model(input_ids=ids_B_T, use_cache=False).logits
            logprobs_B_T = token_logprobs(logits_B_T_V[:, :-1], ids_B_T[:, 1:])
            return -(logprobs_B_T * weights_B_T[:, 1:]).sum()

        return MicroBatch(questions_B_T, loss)

    size = WAYS[way] * ANSWERS
    groups = [answers[first : first + size] for first in range(0, len(answers), size)]
    before, started = _peak_mb(), time.process_time()
    if way == "one by one":
        scores = []
        for group in groups:
            model.zero_grad()
            batch_of(group).loss().backward()
            dots = lengths = target_lengths = 0.0
            for name, factor in factors.items():
                assert factor.grad is not None
                step = adamw_direction(
                    factor.grad[None], values[name], steps=5, beta2=0.999, epsilon=1e-8
                )
                dots += (step * target[name]).sum().item()
                lengths += step.square().sum().item()
                target_lengths += target[name].square().sum().item()
            scores.append(dots / (lengths * target_lengths) ** 0.5)
    else:
        batches = [batch_of(group) for group in groups]
        found = influence(model, batches, questions=questions, target=target, moment=moment)
        scores = preconditioned_cosine(found).tolist()
    return {
        "backward passes": len(groups),
        "CPU s": time.process_time() - started,
        "peak memory, MB": _peak_mb() - before,
        "scores": scores,
    }


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


if __name__ == "__main__":
    print(json.dumps(_one_way(sys.argv[1], int(sys.argv[2]))))

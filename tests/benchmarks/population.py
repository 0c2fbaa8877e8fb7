"""What a population costs against a lone adapter: whole training steps at equal tokens."""

import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

from substrate.dropin import read_dropin
from tests.benchmarks._pocket import POCKET, REFERENCE

MEMBERS = 8
BATCHES = (64, 128, 256, 512)  # rollouts of a step, of all members together
REPEATS = 7
GROUP = 8  # attempts at each prompt
MAX_TOKENS = 160
DEPTHS = range(3, 9)

WHAT = (
    "A step of policy-gradient training on the pocket base, float32, one thread: sampling at "
    f"temperature 1 until the end token or {MAX_TOKENS} tokens, on target problems of depths "
    f"{DEPTHS[0]} to {DEPTHS[-1]}, {GROUP} attempts at each; forward and backward pass; update. A "
    f"population of {MEMBERS} LoRA adapters of rank 16, each with its share of the prompts, "
    "against a population of one with all of them: CPU-seconds for each sampled token, as a "
    "ratio, of the whole step and of its two parts. Of medians of "
    f"{REPEATS} steps, in turn, after a first round that does not count."
)


@dataclass(frozen=True)
class Cost:
    """CPU-seconds of one step, for each token that was sampled in it."""

    step: float
    sampling: float
    training: float
    tokens: int


def run() -> dict[str, Any]:
    sys.path.insert(0, str(REFERENCE))
    import torch
    from transformers import AutoTokenizer, Qwen3ForCausalLM

    from training.member_adam import MemberAdam
    from training.population import Population, Row
    from training.sampling import sample

    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(POCKET / "base")
    dice = torch.Generator().manual_seed(0)
    target = (POCKET / "data/target.jsonl").read_text(encoding="utf-8").splitlines()
    problems = [json.loads(line) for line in target]
    texts = [problem["prompt"] for problem in problems if problem["depth"] in DEPTHS]

    def prompts_of(rollouts: int) -> list[list[int]]:
        chosen = torch.randint(len(texts), (rollouts // GROUP,), generator=dice).tolist()
        read = tokenizer([texts[number] for number in chosen])["input_ids"]
        return [prompt for prompt in read for _ in range(GROUP)]

    def members(count: int) -> Population:
        shape = read_dropin(POCKET).manifest.adapter
        population = Population(
            Qwen3ForCausalLM.from_pretrained(POCKET / "base", dtype=torch.float32),
            count=count,
            rank=shape.rank,
            alpha=shape.alpha,
            target_modules=shape.target_modules,
            seeds=range(count),
        )
        # At a small scale: the completions stay as long as those of the base.
        population.factors_G_P += 1e-3 * torch.randn_like(population.factors_G_P)
        return population

    def step(population: Population, optimiser: MemberAdam, prompts: list[list[int]]) -> Cost:
        owners = [n * population.count // len(prompts) for n in range(len(prompts))]
        started = time.process_time()
        completions = sample(
            population.pack(),
            prompts,
            end=tokenizer.eos_token_id,
            max_tokens=MAX_TOKENS,
            generator=dice,
            adapter_of=owners,
        )
        between = time.process_time()
        rows = [
            Row(owner, prompt, completion.tokens)
            for owner, prompt, completion in zip(owners, prompts, completions, strict=True)
        ]
        logprobs_N_T, _ = population.logprobs(rows)
        advantages_N_1 = torch.randn(len(rows), 1)
        (logprobs_N_T * advantages_N_1).sum().backward()
        optimiser.step([1e-7] * population.count, clip_norm=1.0)
        ended = time.process_time()
        tokens = sum(len(completion.tokens) for completion in completions)
        return Cost(
            step=(ended - started) / tokens,
            sampling=(between - started) / tokens,
            training=(ended - between) / tokens,
            tokens=tokens,
        )

    crowd, lone = members(MEMBERS), members(1)
    adams = {population: MemberAdam(population, betas=(0.9, 0.95)) for population in (crowd, lone)}
    figures: dict[str, Any] = {}
    for batch in BATCHES:
        costs: dict[Population, list[Cost]] = {crowd: [], lone: []}
        for _ in range(REPEATS + 1):
            prompts = prompts_of(batch)
            for population, found in costs.items():
                found.append(step(population, adams[population], prompts))
        for part in ("step", "sampling", "training"):
            many, one = (
                statistics.median(vars(cost)[part] for cost in found[1:])
                for found in costs.values()
            )
            figures[f"{batch} rollouts, {part}, {MEMBERS} members to one"] = many / one
        seconds = statistics.median(cost.step * cost.tokens for cost in costs[crowd][1:])
        figures[f"{batch} rollouts, {MEMBERS} members, rollouts/s"] = batch / seconds
    return figures

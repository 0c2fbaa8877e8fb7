"""How fast our decoder samples, against transformers generate; and many adapters in one batch."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from substrate.dropin import read_dropin
from tests.benchmarks._pocket import POCKET, REFERENCE

REPEATS = 5
GROUP = 8  # completions of each prompt
MAX_TOKENS = 160
ADAPTERS = 8
DEPTHS = range(3, 9)

WHAT = (
    "Our decoder on the pocket base, float32, one thread, sampling at temperature 1 until the end "
    f"token or {MAX_TOKENS} tokens, on target problems of depths {DEPTHS[0]} to {DEPTHS[-1]}; "
    "against transformers generate on the same prompts, each of them 8 times. Then 8 LoRA adapters "
    "of rank 16 in one batch, each prompt once, against one batch for each adapter and against one "
    "adapter with all prompts. Per CPU-second, packing the weights included; medians of 5, in turn."
)


def run() -> dict[str, Any]:
    sys.path.insert(0, str(REFERENCE))
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoTokenizer, GenerationConfig, Qwen3ForCausalLM

    from training.sampling import sample
    from training.weights import pack

    torch.set_num_threads(1)
    torch.manual_seed(0)
    base = Qwen3ForCausalLM.from_pretrained(POCKET / "base", dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(POCKET / "base")
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    dice = torch.Generator().manual_seed(0)
    target = (POCKET / "data/target.jsonl").read_text(encoding="utf-8").splitlines()
    problems = [json.loads(line) for line in target]
    texts = [problem["prompt"] for problem in problems if problem["depth"] in DEPTHS]

    def prompts_of(count: int) -> list[list[int]]:
        chosen = torch.randint(len(texts), (count,), generator=dice).tolist()
        return tokenizer([texts[number] for number in chosen])["input_ids"]

    def ours(model: Any, names: list[str], prompts: list[list[int]], owners: list[int]) -> int:
        completions = sample(
            pack(model, names),
            prompts,
            end=end,
            max_tokens=MAX_TOKENS,
            generator=dice,
            adapter_of=owners,
        )
        return sum(len(completion.tokens) for completion in completions)

    def theirs(prompts: list[list[int]]) -> int:
        width = max(len(prompt) for prompt in prompts)
        ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
        sampling = GenerationConfig(
            do_sample=True,
            top_k=0,
            max_new_tokens=MAX_TOKENS,
            eos_token_id=end,
            pad_token_id=pad,
        )
        model: Any = base
        with torch.inference_mode():
            tokens = model.generate(
                input_ids=ids, attention_mask=(ids != pad).long(), generation_config=sampling
            )
        completions = tokens[:, width:].tolist()
        return sum(row.index(end) + 1 if end in row else len(row) for row in completions)

    figures: dict[str, Any] = {}
    for batch in (64, 256):
        prompts = [prompt for prompt in prompts_of(batch // GROUP) for _ in range(GROUP)]
        fast, slow = _tokens_per_second(
            lambda p=prompts: ours(base, [], p, [0] * len(p)), lambda p=prompts: theirs(p)
        )
        mean_length = ours(base, [], prompts, [0] * batch) / batch
        figures |= {
            f"batch {batch}, ours, tokens/s": fast,
            f"batch {batch}, transformers, tokens/s": slow,
            f"batch {batch}, ours, rollouts/s": fast / mean_length,
            f"batch {batch}, transformers, rollouts/s": slow / mean_length,
            f"batch {batch}, ours to transformers": fast / slow,
        }

    names = [f"adapter{number}" for number in range(ADAPTERS)]
    # Random factors at a small scale: the completions stay as long as those of the base.
    modules = list(read_dropin(POCKET).manifest.adapter.target_modules)
    lora = LoraConfig(r=16, lora_alpha=1, target_modules=modules, init_lora_weights=False)
    model = get_peft_model(base, lora, adapter_name=names[0])
    assert isinstance(model, PeftModel)
    for name in names[1:]:
        model.add_adapter(name, lora)
    for each in (4, 8, 16, 32):
        prompts = prompts_of(each * ADAPTERS)
        owners = [adapter for adapter in range(ADAPTERS) for _ in range(each)]

        def separately(prompts: list[list[int]] = prompts, each: int = each) -> int:
            return sum(
                ours(model, [name], prompts[n * each : (n + 1) * each], [0] * each)
                for n, name in enumerate(names)
            )

        grouped, separate, alone = _tokens_per_second(
            lambda p=prompts, o=owners: ours(model, names, p, o),
            separately,
            lambda p=prompts: ours(model, names[:1], p, [0] * len(p)),
        )
        figures |= {
            f"8 adapters x {each}, one batch, tokens/s": grouped,
            f"8 adapters x {each}, one batch to 8 batches": grouped / separate,
            f"8 adapters x {each}, one batch to one adapter": grouped / alone,
        }
    return figures


def _tokens_per_second(*works: Callable[[], int]) -> list[float]:
    """Tokens per CPU-second of each, in turn, after a first round that does not count."""
    rounds = [[_rate(work) for work in works] for _ in range(REPEATS + 1)]
    return [statistics.median(rates) for rates in zip(*rounds[1:], strict=True)]


def _rate(work: Callable[[], int]) -> float:
    started = time.process_time()
    tokens = work()
    return tokens / (time.process_time() - started)

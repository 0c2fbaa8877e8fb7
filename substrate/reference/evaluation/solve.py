"""The engine: greedy answers of base model and adapter.

A question is {"prompt", "room", ...}. The prompt is given to the model as it is; the answer is the
text up to the end-of-sequence token, or to as many tokens as the host says that an answer may need
bytes, which is its `room`, and a few more: no tokenizer makes more tokens than bytes of a text.
Nothing is sampled, so a score repeats exactly on one machine.

The adapter's two factors are loaded into a LoRA made here, of the declared rank and alpha on the
modules that the tensors name: the configuration that came with them is data to check, not to obey.
That it is in place shows on the first prompts: the logits with it are not those without.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.utils import logging as transformers_logging

from evaluation.adapter import CONFIG, FACTOR, WEIGHTS, BadAdapter, Unbound
from training.models import load_tokenizer

ENGINE = (
    f"transformers {transformers.__version__}, peft {peft.__version__}, torch {torch.__version__}"
)
BATCH_SIZE = 64  # prompts answered at a time
PROBED = 4  # prompts on which the adapter has to show
SLACK_TOKENS = 8  # an answer may be spelt with more tokens than the tokenizer's own spelling


def solve(base: Path, adapter: Path, questions: list[dict[str, Any]]) -> list[str]:
    """The text of each question's answer.

    Raises BadAdapter for tensors that have no place in the base model, and Unbound.
    """
    transformers_logging.disable_progress_bar()
    torch.use_deterministic_algorithms(True)
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    tokenizer = load_tokenizer(base)
    model = load(base, adapter, device)
    prompts = [question["prompt"] for question in questions]
    check_binding(model, tokenizer(prompts[:PROBED], return_tensors="pt", padding=True).to(device))

    answers = [""] * len(questions)
    # Prompts of like length together: less padding.
    order = sorted(range(len(questions)), key=lambda index: len(prompts[index]))
    for start in range(0, len(order), BATCH_SIZE):
        batch = order[start : start + BATCH_SIZE]
        inputs = tokenizer([prompts[index] for index in batch], return_tensors="pt", padding=True)
        greedy = GenerationConfig(
            do_sample=False,
            max_new_tokens=most_tokens([questions[index] for index in batch]),
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        with torch.inference_mode():
            tokens_B_T = model.generate(**inputs.to(device), generation_config=greedy)
        width = inputs["input_ids"].shape[1]
        texts = tokenizer.batch_decode(tokens_B_T[:, width:], skip_special_tokens=True)
        for index, text in zip(batch, texts, strict=True):
            answers[index] = text
    return answers


def most_tokens(questions: Sequence[Mapping[str, Any]]) -> int:
    """How many tokens an answer to any of these may have."""
    return max(question["room"] for question in questions) + SLACK_TOKENS


def check_binding(model: PeftModel, inputs: Any) -> None:
    """Raise Unbound where every logit is, to the bit, what it is without the adapter."""
    with torch.inference_mode():
        logits_B_T_V = model(**inputs).logits
        with model.disable_adapter():
            plain_B_T_V = model(**inputs).logits
    if torch.equal(logits_B_T_V, plain_B_T_V):
        count = len(logits_B_T_V)
        raise Unbound(f"wanted logits that differ from the base model's on {count} prompts")


def load(base: Path, adapter: Path, device: str) -> PeftModel:
    """The base model with the adapter on it, ready to generate."""
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, use_safetensors=True)
    shape = json.loads((adapter / CONFIG).read_text(encoding="utf-8"))
    tensors = load_file(adapter / WEIGHTS)
    names = {match["module"] for key in tensors if (match := FACTOR.fullmatch(key))}
    missing = sorted(names - {name for name, _ in model.named_modules()})
    if missing:
        raise BadAdapter(f"tensor-key: wanted modules of the base model, found {missing[:3]}")
    lora = LoraConfig(
        r=shape["r"],
        lora_alpha=shape["lora_alpha"],
        target_modules=sorted(names),
        task_type="CAUSAL_LM",
    )
    with_lora = get_peft_model(model, lora)
    assert isinstance(with_lora, PeftModel)
    own = {key: tuple(t.shape) for key, t in get_peft_model_state_dict(with_lora).items()}
    for key, tensor in tensors.items():
        if own.get(key) != tuple(tensor.shape):
            found = tuple(tensor.shape)
            raise BadAdapter(f"shape: wanted {key} of shape {own.get(key)}, found {found}")
    set_peft_model_state_dict(with_lora, tensors)
    return with_lora.to(device).eval()

"""The model that a recipe trains: the job's frozen base, with a LoRA adapter of the job's shape."""

from collections.abc import Callable
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import logging as transformers_logging

from training.journal import Job

ADAPTER = "default"  # the name that PEFT gives an adapter


def load_with_lora(job: Job, *, dropout: float = 0.0) -> PeftModel:
    """The base model, frozen, with fresh LoRA factors on the job's target modules, on its device.

    LoRA is Hu et al., arXiv 2106.09685: B is 0, so that the model starts as the base; A comes from
    PyTorch's random numbers, which the caller seeds. `dropout` is that of A's inputs.
    """
    shape = LoraConfig(
        r=job.rank,
        lora_alpha=job.alpha,  # pyright: ignore[reportArgumentType]  # a float does as well
        target_modules=list(job.target_modules),
        lora_dropout=dropout,
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(
        load_base(job), shape, adapter_name=ADAPTER
    )  # factors: float32 on any base
    assert isinstance(model, PeftModel)
    model.to(job.device)
    return model.train()


def load_base(job: Job) -> PreTrainedModel:
    """The base model, on the job's device."""
    transformers_logging.disable_progress_bar()
    # On a GPU bfloat16 halves the memory of the frozen weights; a CPU is no faster with it.
    dtype = torch.bfloat16 if job.device.startswith("cuda") else torch.float32
    base: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        job.base, dtype=dtype, use_safetensors=True
    )
    return base.to(job.device)  # pyright: ignore[reportArgumentType]


def load_tokenizer(base: Path) -> PreTrainedTokenizerBase:
    """A base's tokenizer, padding on the left; one without a padding token pads with its end."""
    tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def token_counter(base: Path) -> Callable[[str], int]:
    """How many tokens of a base a text has."""
    tokenizer = load_tokenizer(base)
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])


def save_adapter(model: PeftModel, folder: Path) -> None:
    """Write the adapter as PEFT reads it: `adapter_model.safetensors` and its configuration."""
    model.save_pretrained(str(folder), safe_serialization=True)

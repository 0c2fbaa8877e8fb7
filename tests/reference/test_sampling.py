"""The decoder against transformers generate, and many adapters against one at a time."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.modeling_utils import PreTrainedModel

from training.sampling import Completion, sample
from training.weights import pack

# PEFT asks transformers for an attribute that transformers warns about.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

END = 1
VOCABULARY = 40
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "head_dim": 12,
    "initializer_range": 0.3,  # so large that greedy decoding knows no ties
    "eos_token_id": END,
    "pad_token_id": 0,
    "bos_token_id": None,
}
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = ["first", "second", "third"]


def qwen3(key_heads: int = 4) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(**SHAPE, num_key_value_heads=key_heads, tie_word_embeddings=True)
    ).eval()


def llama(key_heads: int = 2) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(**SHAPE, num_key_value_heads=key_heads, tie_word_embeddings=False)
    return LlamaForCausalLM(config).eval()


def prompts_of(count: int, seed: int = 0) -> list[list[int]]:
    """Prompts of 1 to 12 tokens, the first of them three times."""
    dice = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 13, (count,), generator=dice).tolist()
    prompts = [
        torch.randint(2, VOCABULARY, (length,), generator=dice).tolist() for length in lengths
    ]
    return [prompts[0], prompts[0], *prompts[:-2]]


def generate(model: Any, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """What transformers says: greedy completions with their end token."""
    width = max(len(prompt) for prompt in prompts)
    padding = [width - len(prompt) for prompt in prompts]
    ids = [[0] * p + prompt for p, prompt in zip(padding, prompts, strict=True)]
    mask = [[0] * p + [1] * len(prompt) for p, prompt in zip(padding, prompts, strict=True)]
    greedy = GenerationConfig(
        do_sample=False, max_new_tokens=tokens, eos_token_id=END, pad_token_id=0
    )
    with torch.inference_mode():
        tokens_B_T = model.generate(
            input_ids=torch.tensor(ids),
            attention_mask=torch.tensor(mask),
            generation_config=greedy,
        )
    completions = tokens_B_T[:, width:].tolist()
    return [row[: row.index(END) + 1] if END in row else row for row in completions]


@pytest.fixture(scope="module")
def population() -> PeftModel:
    """One base with three adapters that change it much, each in its own way."""
    torch.manual_seed(1)
    shape = LoraConfig(r=4, lora_alpha=8, target_modules=PROJECTIONS, init_lora_weights=False)
    model = get_peft_model(qwen3(), shape, adapter_name=ADAPTERS[0])
    assert isinstance(model, PeftModel)
    for name in ADAPTERS[1:]:
        model.add_adapter(name, shape)
    return model.eval()


@pytest.mark.parametrize("model", [qwen3(), qwen3(key_heads=2), llama(), llama(key_heads=1)])
def test_greedy_decoding_gives_the_tokens_of_transformers_generate(model: PreTrainedModel) -> None:
    prompts = prompts_of(48)
    found = sample(pack(model), prompts, end=END, max_tokens=30, temperature=0)
    assert [completion.tokens for completion in found] == generate(model, prompts, 30)
    ended = sum(completion.ended for completion in found)
    assert 4 <= ended <= 44  # rows were dropped, and rows were cut off


def test_each_adapter_gives_the_tokens_of_transformers_generate(population: PeftModel) -> None:
    prompts = prompts_of(16)
    answers = []
    for name in ADAPTERS:
        population.set_adapter(name)
        found = sample(pack(population, [name]), prompts, end=END, max_tokens=20, temperature=0)
        answers.append([completion.tokens for completion in found])
        assert answers[-1] == generate(population, prompts, 20)
    with population.disable_adapter():
        base = generate(population, prompts, 20)
    found = sample(pack(population), prompts, end=END, max_tokens=20, temperature=0)
    assert [completion.tokens for completion in found] == base
    assert base not in answers and answers[0] != answers[1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("sizes", [(8, 8, 8), (3, 12, 1), (0, 9, 2)])
def test_adapters_in_one_batch_give_what_they_give_one_after_another(
    population: PeftModel, sizes: tuple[int, int, int], temperature: float
) -> None:
    prompts = prompts_of(sum(sizes))
    owners = [adapter for adapter, size in enumerate(sizes) for _ in range(size)]
    together = sample(
        pack(population, ADAPTERS),
        prompts,
        end=END,
        max_tokens=20,
        temperature=temperature,
        generator=torch.Generator().manual_seed(5),
        adapter_of=owners,
    )
    generator = torch.Generator().manual_seed(5)
    alone: list[Completion] = []
    for adapter, name in enumerate(ADAPTERS):
        alone += sample(
            pack(population, [name]),
            [prompt for prompt, owner in zip(prompts, owners, strict=True) if owner == adapter],
            end=END,
            max_tokens=20,
            temperature=temperature,
            generator=generator,
        )
    assert [completion.tokens for completion in together] == [c.tokens for c in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_completions_come_in_the_order_of_the_prompts(population: PeftModel) -> None:
    weights, prompts = pack(population, ADAPTERS), prompts_of(9)
    owners = [2, 0, 1, 1, 0, 2, 0, 2, 1]
    mixed = sample(weights, prompts, end=END, max_tokens=8, temperature=0, adapter_of=owners)
    for prompt, owner, completion in zip(prompts, owners, mixed, strict=True):
        alone = sample(weights, [prompt], end=END, max_tokens=8, temperature=0, adapter_of=[owner])
        assert alone[0].tokens == completion.tokens


def test_log_probabilities_are_the_models_at_the_sampling_temperature() -> None:
    model, prompts = llama(), prompts_of(8)
    found = sample(
        pack(model),
        prompts,
        end=END,
        max_tokens=12,
        temperature=1.7,
        generator=torch.Generator().manual_seed(0),
    )
    for prompt, completion in zip(prompts, found, strict=True):
        tokens_T = torch.tensor(completion.tokens)
        with torch.inference_mode():
            logits_T_V = model(torch.tensor([prompt + completion.tokens])).logits[0]
        logprobs_T_V = (logits_T_V[len(prompt) - 1 : -1] / 1.7).log_softmax(-1)
        wanted = logprobs_T_V.gather(1, tokens_T[:, None])[:, 0]
        assert completion.logprobs == pytest.approx(wanted.tolist(), abs=1e-4)


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    model, draws = qwen3(), 20_000
    found = sample(
        pack(model),
        [[7, 8, 9]] * draws,
        end=END,
        max_tokens=1,
        temperature=2.0,
        generator=torch.Generator().manual_seed(0),
    )
    with torch.inference_mode():
        wanted_V = (model(torch.tensor([[7, 8, 9]])).logits[0, -1] / 2.0).softmax(-1)
    counts = torch.tensor([completion.tokens[0] for completion in found]).bincount(
        minlength=VOCABULARY
    )
    error_V = (wanted_V * (1 - wanted_V) / draws).sqrt()
    assert ((counts / draws - wanted_V).abs() <= 4 * error_V + 1 / draws).all()
    assert (counts > 0).sum() >= 5


def test_one_seed_gives_one_sample_and_another_seed_another() -> None:
    weights, prompts = pack(qwen3()), prompts_of(6)

    def tokens(seed: int) -> list[list[int]]:
        dice = torch.Generator().manual_seed(seed)
        found = sample(weights, prompts, end=END, max_tokens=10, generator=dice)
        return [completion.tokens for completion in found]

    assert tokens(1) == tokens(1) != tokens(2)


def test_greedy_decoding_leaves_the_global_random_numbers_alone() -> None:
    weights = pack(qwen3())
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    sample(weights, [[5]], end=END, max_tokens=2, temperature=0)
    assert torch.rand(1) == wanted


def test_packed_weights_do_not_follow_the_model() -> None:
    model = qwen3()
    weights = pack(model)
    before = sample(weights, [[5, 6]], end=END, max_tokens=10, temperature=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-1.3)
    assert sample(weights, [[5, 6]], end=END, max_tokens=10, temperature=0) == before
    assert sample(pack(model), [[5, 6]], end=END, max_tokens=10, temperature=0) != before


def test_no_prompts_give_no_completions() -> None:
    assert sample(pack(qwen3()), [], end=END, max_tokens=4, temperature=0) == []


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        ({"prompts": [[5], []]}, "at least one token in each prompt"),
        ({"adapter_of": [0, 1]}, "wanted an adapter from 0 to 0"),
        ({"adapter_of": [0]}, "for each of 2 prompts"),
        ({"temperature": 1.0}, "seed a torch.Generator"),
        ({"temperature": -1.0}, "found -1.0"),
    ],
)
def test_wrong_orders_are_refused(orders: dict, message: str) -> None:
    given = {"prompts": [[5], [6]], "end": END, "max_tokens": 2, "temperature": 0.0} | orders
    with pytest.raises(ValueError, match=message):
        sample(pack(qwen3()), **given)


def test_a_bfloat16_base_with_float32_factors_is_sampled_in_bfloat16() -> None:
    shape = LoraConfig(r=4, target_modules=PROJECTIONS, init_lora_weights=False)
    model = get_peft_model(qwen3().bfloat16(), shape)
    assert isinstance(model, PeftModel)
    factors = {weight.dtype for name, weight in model.named_parameters() if "lora_" in name}
    assert factors == {torch.float32}
    weights = pack(model, ["default"])
    assert weights.layers[0].qkv.weight_I_O.dtype == torch.bfloat16
    found = sample(weights, prompts_of(8), end=END, max_tokens=5, temperature=0)
    assert all(math.isfinite(logprob) for one in found for logprob in one.logprobs)


def test_what_the_decoder_does_not_know_is_refused(population: PeftModel) -> None:
    small = GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=9, n_positions=8)
    with pytest.raises(ValueError, match="found a GPT2LMHeadModel"):
        pack(GPT2LMHeadModel(small))
    biased = LlamaConfig(**SHAPE, num_key_value_heads=2, attention_bias=True)
    with pytest.raises(ValueError, match="attention_bias True"):
        pack(LlamaForCausalLM(biased))
    biased = LlamaConfig(**SHAPE, num_key_value_heads=2, mlp_bias=True)
    with pytest.raises(ValueError, match="without a bias"):
        pack(LlamaForCausalLM(biased))
    with pytest.raises(ValueError, match=r"found \['fourth'\]"):
        pack(population, ["fourth"])
    for changed in (
        LoraConfig(r=2, target_modules=["q_proj"], use_dora=True),
        LoraConfig(r=2, target_modules=["q_proj", "lm_head"]),
        LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"]),
    ):
        model = get_peft_model(llama(), changed)
        assert isinstance(model, PeftModel)
        with pytest.raises(ValueError, match="wanted plain LoRA on projections only"):
            pack(model, ["default"])


def test_a_completion_ends_with_the_end_token_or_is_cut_off() -> None:
    weights, prompts = pack(qwen3()), prompts_of(40)
    found = sample(weights, prompts, end=END, max_tokens=15, temperature=0)
    for completion in found:
        assert completion.ended == (completion.tokens[-1] == END)
        assert completion.ended or len(completion.tokens) == 15
        assert END not in completion.tokens[:-1]
        assert len(completion.logprobs) == len(completion.tokens)
    assert {dataclasses.astuple(completion)[2] for completion in found} == {True, False}

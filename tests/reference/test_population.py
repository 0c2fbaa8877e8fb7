"""A population of adapters against PEFT and PyTorch, which have one at a time."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GenerationConfig,
    LlamaConfig,
    MambaConfig,
    Qwen2Config,
)
from transformers.modeling_utils import PreTrainedModel

from evaluation.adapter import check
from substrate.dropin import read_dropin
from tests.reference.tiny_dropin import write_base
from training import population as population_module
from training.member_adam import MemberAdam
from training.population import Population, Row
from training.sampling import sample
from training.weights import pack

# PEFT asks transformers for an attribute that transformers warns about.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

POCKET = Path(__file__).parents[2] / "substrate/library/pocket"
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
RANK, ALPHA = 4, 10.0
END = 0
COUNT = 3


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "base"
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "head_dim": 8}
    # So large that greedy decoding knows no ties.
    write_base(folder, "abcdefghijklmnop=>", initializer_range=0.3, **shape)
    return folder


def load(base: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(base, dtype=dtype)


def made(
    base: Path,
    *,
    count: int = COUNT,
    dtype: torch.dtype = torch.float32,
    targets: Sequence[str] = TARGETS,
) -> Population:
    """Members that change the base much, each in its own way."""
    population = Population(
        load(base, dtype),
        count=count,
        rank=RANK,
        alpha=ALPHA,
        target_modules=targets,
        seeds=range(count),
    )
    for member in range(count):
        population.replace(member, stirred(population.adapter(member), seed=member))
    return population


def stirred(adapter: dict[str, Tensor], *, seed: int) -> dict[str, Tensor]:
    dice = torch.Generator().manual_seed(seed)
    return {
        key: factor + 0.1 * torch.randn(factor.shape, generator=dice).to(factor)
        for key, factor in adapter.items()
    }


def rows_of(member: int, count: int, *, seed: int = 0, longest: int = 12) -> list[Row]:
    dice = torch.Generator().manual_seed(seed)

    def tokens() -> list[int]:
        length = int(torch.randint(1, longest, (), generator=dice))
        return torch.randint(2, 20, (length,), generator=dice).tolist()

    return [Row(member, tokens(), tokens()) for _ in range(count)]


def loss_of(logprobs_N_T: Tensor, mask_N_T: Tensor) -> Tensor:
    """Of each token another share, so that none is mistaken for another."""
    shares_T = 1 + torch.arange(logprobs_N_T.shape[1], device=logprobs_N_T.device) / 40
    return (logprobs_N_T * shares_T * mask_N_T).sum()


def teach(population: Population, rows: Sequence[Row]) -> None:
    loss_of(*population.logprobs(rows)).backward()


def peft_of(population: Population, member: int, base: Path, folder: Path) -> Any:
    """The same member as PEFT loads it."""
    population.save(member, folder / str(member))
    dtype = population.factors_G_P.dtype
    model = PeftModel.from_pretrained(load(base, dtype), folder / str(member), is_trainable=True)
    for key, value in model.named_parameters():  # a file of float64 is loaded as float32
        if value.requires_grad:
            exact = population.adapter(member)[key.replace(".default", "")]
            value.data = exact.clone()
    return model.eval()


def peft_logprobs(model: Any, row: Row, temperature: float = 1.0) -> Tensor:
    ids = torch.tensor([[*row.prompt, *row.completion]])
    logits_T_V = model(input_ids=ids).logits[0, len(row.prompt) - 1 : -1] / temperature
    return logits_T_V.log_softmax(-1).gather(1, torch.tensor(row.completion)[:, None])[:, 0]


def generate(model: Any, prompt: list[int], tokens: int) -> list[int]:
    greedy = GenerationConfig(
        do_sample=False, max_new_tokens=tokens, eos_token_id=END, pad_token_id=1
    )
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        found = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=greedy
        )
    return found[0, len(prompt) :].tolist()


def test_members_start_as_the_base_each_from_its_own_seed(tiny: Path) -> None:
    def adapters(seeds: Sequence[int]) -> list[dict[str, Tensor]]:
        population = Population(
            load(tiny), count=2, rank=RANK, alpha=ALPHA, target_modules=TARGETS, seeds=seeds
        )
        return [population.adapter(member) for member in range(2)]

    first, second = adapters([5, 6])
    other, same = adapters([6, 5])
    for key, factor in first.items():
        assert factor.equal(same[key]) and second[key].equal(other[key])
        if ".lora_A." in key:
            assert not factor.equal(second[key])
            # Uniform within 1 / sqrt(inputs): PEFT's.
            assert 0.9 < factor.abs().max() * factor.shape[1] ** 0.5 <= 1
        else:
            assert not factor.any()


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_gradients_and_log_probabilities_are_pefts(
    tiny: Path, tmp_path: Path, dtype: torch.dtype, error: float
) -> None:
    population = made(tiny, dtype=dtype)
    counts = [5, 1, 4]
    rows = [row for member, n in enumerate(counts) for row in rows_of(member, n, seed=member)]
    rows = [*rows_of(population.base, 2, seed=9), *rows[::-1]]
    logprobs_N_T, mask_N_T = population.logprobs(rows, temperature=1.3)
    assert mask_N_T.sum(dim=1).tolist() == [len(row.completion) for row in rows]
    assert not logprobs_N_T[mask_N_T == 0].any()
    loss_of(logprobs_N_T, mask_N_T).backward()

    for member in range(COUNT):
        model = peft_of(population, member, tiny, tmp_path)
        for n, row in enumerate(rows):
            if row.member in (member, population.base):
                with model.disable_adapter() if row.member != member else nullcontext():
                    wanted_T = peft_logprobs(model, row, temperature=1.3)
                found_T = logprobs_N_T[n, : len(row.completion)]
                torch.testing.assert_close(found_T, wanted_T, rtol=error, atol=error)
                if row.member == member:
                    loss_of(wanted_T[None], torch.ones_like(wanted_T[None])).backward()
        found = population.gradient(member)
        trained = {
            key.replace(".default", ""): parameter
            for key, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        assert found.keys() == trained.keys()
        for key, parameter in trained.items():
            assert parameter.grad is not None and parameter.grad.any()
            scale = float(parameter.grad.abs().max())
            torch.testing.assert_close(found[key], parameter.grad, rtol=error, atol=error * scale)


def test_rows_a_few_at_a_time_add_up_to_the_same_gradient(tiny: Path) -> None:
    population = made(tiny)
    rows = [row for n in range(200) for row in rows_of(n % COUNT, 1, seed=n, longest=40)]
    tokens = sum(len(row.prompt) + len(row.completion) for row in rows)
    assert tokens > 1.5 * population_module.PASS_TOKENS  # several passes
    teach(population, rows)
    at_once = population.gradients_G_P.clone()
    population.gradients_G_P.zero_()
    for start in range(0, len(rows), 64):
        teach(population, rows[start : start + 64])
    error = 1e-5 * float(at_once.abs().max())
    torch.testing.assert_close(population.gradients_G_P, at_once, rtol=1e-5, atol=error)


@pytest.mark.parametrize("base", ["tiny", "pocket"])
def test_training_one_member_leaves_the_base_and_the_others_as_they_were(
    base: str, tiny: Path
) -> None:
    population = made({"tiny": tiny, "pocket": POCKET / "base"}[base])
    optimiser = MemberAdam(population, betas=(0.9, 0.99))
    for member in range(COUNT):
        teach(population, rows_of(member, 2, seed=member))
    optimiser.step([0.01] * COUNT, clip_norm=1.0)

    model, moments = population.model, optimiser.state_dict()
    frozen = {key: p.clone() for key, p in model.named_parameters() if not p.requires_grad}
    adapters = [population.adapter(member) for member in range(COUNT)]
    teach(population, rows_of(1, 4, seed=7))
    norms = optimiser.step([0.01] * COUNT, clip_norm=1.0)

    assert norms[0] == norms[2] == 0 < norms[1]
    after = dict(model.named_parameters())
    assert all(after[key].equal(value) for key, value in frozen.items()) and len(frozen) > 20
    assert all(after[key].grad is None for key in frozen)
    for member in (0, 2):
        found = population.adapter(member)
        assert all(found[key].equal(value) for key, value in adapters[member].items())
    assert not any(population.adapter(1)[key].equal(value) for key, value in adapters[1].items())
    for key, value in optimiser.state_dict().items():
        assert value.equal(moments[key]) == (not key.startswith("1.")), key


def test_each_member_is_trained_as_pytorchs_adamw_with_clipping_trains_it(tiny: Path) -> None:
    population = made(tiny)
    optimiser = MemberAdam(population, betas=(0.8, 0.95), weight_decay=0.02)
    rates = [0.01, 0.02, 0.005]
    theirs: list[list[torch.nn.Parameter]] = []
    adams: list[torch.optim.AdamW] = []

    def start(member: int) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            theirs[member], lr=rates[member], betas=(0.8, 0.95), weight_decay=0.02
        )

    for member in range(COUNT):
        factors = population.adapter(member).values()
        theirs.append([torch.nn.Parameter(factor) for factor in factors])
        adams.append(start(member))

    norms: list[float] = []
    steps = [{0: 1, 1: 2, 2: 3}, {0: 4, 2: 5}, {1: 6}, {0: 7, 1: 8, 2: 9}, {0: 1, 1: 1}]
    for number, step in enumerate(steps):  # by member, the seed of its rows
        if number == 3:
            optimiser.reset(2)
            adams[2] = start(2)
        for member, seed in step.items():
            teach(population, rows_of(member, 3, seed=seed))
        norms = []
        for member in range(COUNT):
            gradients = population.gradient(member)
            for parameter, gradient in zip(theirs[member], gradients.values(), strict=True):
                parameter.grad = gradient.clone() if member in step else None
            norms.append(float(torch.nn.utils.clip_grad_norm_(theirs[member], 2.0)))
            adams[member].step()
        assert optimiser.step(rates, clip_norm=2.0) == pytest.approx(norms, rel=1e-5)
        assert not population.gradients_G_P.any()
        for member in range(COUNT):
            found = population.adapter(member).values()
            for factor, parameter in zip(found, theirs[member], strict=True):
                torch.testing.assert_close(factor, parameter.data, rtol=1e-5, atol=1e-6)
    assert max(norms) > 2.0  # something was clipped


def test_a_member_learns_the_same_alone_and_among_others(tiny: Path) -> None:
    crowd, lone = made(tiny, count=8), made(tiny, count=1)
    lone.replace(0, crowd.adapter(5))
    optimisers = [MemberAdam(each, betas=(0.9, 0.99)) for each in (crowd, lone)]
    for step in range(3):
        own = rows_of(0, 4, seed=step)
        others = [row for n in range(8) if n != 5 for row in rows_of(n, 3, seed=n, longest=30)]
        teach(crowd, [*others, *[Row(5, row.prompt, row.completion) for row in own]])
        teach(lone, own)
        error = 1e-5 * float(lone.gradients_G_P.abs().max())
        torch.testing.assert_close(
            crowd.gradients_G_P[5], lone.gradients_G_P[0], rtol=1e-4, atol=error
        )
        optimisers[0].step([1e-3] * 8, clip_norm=1.0)
        optimisers[1].step([1e-3], clip_norm=1.0)
    torch.testing.assert_close(crowd.factors_G_P[5], lone.factors_G_P[0], rtol=1e-4, atol=1e-5)


def test_a_saved_member_is_what_peft_loads_and_the_scorer_accepts(
    tiny: Path, tmp_path: Path
) -> None:
    population = made(tiny)
    population.save(1, tmp_path / "saved")
    norm = check(
        tmp_path / "saved", rank=RANK, alpha=ALPHA, target_modules=TARGETS, base_sha256="b" * 64
    )
    assert norm > 0
    model = PeftModel.from_pretrained(load(tiny), tmp_path / "saved").eval()
    rows = rows_of(1, 6)
    with torch.no_grad():
        logprobs_N_T, _ = population.logprobs(rows)
        for found_T, row in zip(logprobs_N_T, rows, strict=True):
            wanted_T = peft_logprobs(model, row)
            torch.testing.assert_close(found_T[: len(wanted_T)], wanted_T, rtol=1e-5, atol=1e-5)
    population.save(1, tmp_path / "again")
    for file in ("adapter_model.safetensors", "adapter_config.json"):
        saved, again = (tmp_path / name / file for name in ("saved", "again"))
        assert saved.read_bytes() == again.read_bytes()


def test_a_member_is_replaced_by_a_copy_of_another(tiny: Path) -> None:
    population = made(tiny)
    child, bystander = population.adapter(0), population.adapter(1)
    population.replace(2, child)
    assert all(population.adapter(2)[key].equal(value) for key, value in child.items())
    for value in child.values():
        value.zero_()  # it was a copy, on the way out and on the way in
    assert all(value.any() for value in population.adapter(2).values())
    assert all(value.any() for value in population.adapter(0).values())
    assert all(population.adapter(1)[key].equal(value) for key, value in bystander.items())


@pytest.mark.parametrize("targets", [TARGETS, ["k_proj", "up_proj"]])
def test_the_decoder_samples_members_and_base_as_peft_generates(
    tiny: Path, tmp_path: Path, targets: list[str]
) -> None:
    population = made(tiny, targets=targets)
    prompts = [list(row.prompt) for row in rows_of(0, 13, seed=3)]
    owners = [0, 2, 2, 3, 1, 0, 0, 3, 2, 0, 0, 1, 0]  # of unequal sizes, 3 is the base
    assert population.base == 3
    found = sample(
        population.pack(), prompts, end=END, max_tokens=12, temperature=0, adapter_of=owners
    )
    models: list[Any] = []
    for member in range(COUNT):
        models.append(peft_of(population, member, tiny, tmp_path))
    models.append(load(tiny).eval())
    for prompt, owner, completion in zip(prompts, owners, found, strict=True):
        assert completion.tokens == generate(models[owner], prompt, 12)
    together = {tuple(completion.tokens) for completion in found}
    assert len(together) > 8  # they do not all say the same

    for owner, model in enumerate(models[:3]):  # alone, it is merged; so is PEFT's
        alone = sample(
            population.pack(), prompts, end=END, max_tokens=12, temperature=0,
            adapter_of=[owner] * len(prompts),
        )  # fmt: skip
        pefts = sample(pack(model, ["default"]), prompts, end=END, max_tokens=12, temperature=0)
        assert [completion.tokens for completion in alone] == [one.tokens for one in pefts]


def test_a_member_that_finishes_early_leaves_the_others_as_they_are(tiny: Path) -> None:
    weights = made(tiny).pack()
    prompts = [list(row.prompt) for row in rows_of(0, 16, seed=3)]
    owners = [1] * 4 + [2] * 6 + [3] * 6
    often = 10  # a token that member 1 soon says
    together = sample(weights, prompts, end=often, max_tokens=24, temperature=0, adapter_of=owners)
    assert max(len(completion.tokens) for completion in together[:4]) < 10
    assert not all(completion.ended for completion in together[4:10])
    for prompt, owner, completion in zip(prompts, owners, together, strict=True):
        (alone,) = sample(
            weights, [prompt], end=often, max_tokens=24, temperature=0, adapter_of=[owner]
        )
        assert completion.tokens == alone.tokens


@pytest.mark.parametrize("base", ["tiny", "pocket"])
def test_after_an_update_the_next_rollout_uses_the_new_weights(base: str, tiny: Path) -> None:
    population = made({"tiny": tiny, "pocket": POCKET / "base"}[base])
    optimiser = MemberAdam(population, betas=(0.9, 0.99))
    prompts = [list(row.prompt) for row in rows_of(0, 9)]
    owners = [0, 0, 0, 1, 1, 2, 3, 3, 3]

    def rolled() -> list[Row]:
        completions = sample(
            population.pack(),
            prompts,
            end=END,
            max_tokens=10,
            temperature=1.4,
            generator=torch.Generator().manual_seed(1),
            adapter_of=owners,
        )
        rows = [
            Row(owner, prompt, completion.tokens)
            for owner, prompt, completion in zip(owners, prompts, completions, strict=True)
        ]
        logprobs_N_T, _ = population.logprobs(rows, temperature=1.4)
        for found_T, completion in zip(logprobs_N_T.tolist(), completions, strict=True):
            wanted = completion.logprobs
            assert found_T[: len(wanted)] == pytest.approx(wanted, abs=1e-4)
        return rows

    before = rolled()
    with torch.no_grad():
        old_N_T, _ = population.logprobs(before)
    for _ in range(3):
        teach(population, before[:6])
        optimiser.step([0.02] * COUNT, clip_norm=1.0)
    rolled()
    new_N_T, _ = population.logprobs(before)
    changed = (new_N_T - old_N_T).abs().amax(dim=1)
    assert (changed[:6] > 1e-2).all() and (changed[6:] == 0).all()


def test_a_run_that_is_resumed_ends_in_the_same_bits(tiny: Path, tmp_path: Path) -> None:
    def steps(population: Population, optimiser: MemberAdam, numbers: Sequence[int]) -> None:
        for number in numbers:
            for member in range(COUNT):
                if (number + member) % 3:
                    teach(population, rows_of(member, 2, seed=10 * number + member))
            optimiser.step([0.01, 0.02, 0.03], clip_norm=1.0)

    whole = made(tiny)
    adam = MemberAdam(whole, betas=(0.9, 0.99))
    steps(whole, adam, range(3))
    save_file(adam.state_dict(), tmp_path / "moments.safetensors")
    members = [whole.adapter(member) for member in range(COUNT)]
    steps(whole, adam, range(3, 6))

    resumed = made(tiny)
    again = MemberAdam(resumed, betas=(0.9, 0.99))
    teach(resumed, rows_of(0, 1))
    again.step([0.1] * COUNT, clip_norm=1.0)  # what is there is forgotten
    for member, adapter in enumerate(members):
        resumed.replace(member, adapter)
    again.load_state_dict(load_file(tmp_path / "moments.safetensors"))
    steps(resumed, again, range(3, 6))
    assert resumed.factors_G_P.equal(whole.factors_G_P)
    for key, value in adam.state_dict().items():
        assert again.state_dict()[key].equal(value)


SHAPE: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": None,
}
ARCHITECTURES = {
    "grouped heads": LlamaConfig(**SHAPE),
    "biases": Qwen2Config(**SHAPE),
    "windows and soft caps": Gemma2Config(
        **SHAPE,
        head_dim=8,
        sliding_window=5,
        final_logit_softcapping=4.0,
    ),
    "recurrence": MambaConfig(vocab_size=20, hidden_size=24, num_hidden_layers=2, state_size=4),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_rows_of_any_architecture_come_out_as_each_does_alone(name: str) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        ARCHITECTURES[name],
        attn_implementation="eager",  # what caps attention's scores
    )
    for key, parameter in model.named_parameters():
        if key.endswith("bias"):
            torch.nn.init.normal_(parameter.data)
    rows = rows_of(1, 7)
    model.eval()
    with torch.no_grad():
        wanted = [peft_logprobs(model, row) for row in rows]
    targets = ["in_proj", "out_proj"] if name == "recurrence" else TARGETS
    population = Population(
        model, count=2, rank=RANK, alpha=ALPHA, target_modules=targets, seeds=[0, 1]
    )
    logprobs_N_T, mask_N_T = population.logprobs(rows)  # B is 0: they are the base's
    for found_T, wanted_T in zip(logprobs_N_T, wanted, strict=True):
        torch.testing.assert_close(found_T[: len(wanted_T)], wanted_T, rtol=1e-4, atol=1e-4)
    loss_of(logprobs_N_T, mask_N_T).backward()
    assert population.gradients_G_P[1].any() and not population.gradients_G_P[0].any()


def test_a_bfloat16_base_has_float32_factors_and_is_trained(tiny: Path) -> None:
    half, full = made(tiny, dtype=torch.bfloat16), made(tiny)
    for member in range(COUNT):
        full.replace(member, half.adapter(member))
    assert half.factors_G_P.dtype == half.gradients_G_P.dtype == torch.float32
    rows = rows_of(1, 8)
    teach(half, rows)
    teach(full, rows)
    cosine = torch.cosine_similarity(half.gradients_G_P[1], full.gradients_G_P[1], dim=0)
    assert cosine > 0.98
    before = half.adapter(1)
    MemberAdam(half, betas=(0.9, 0.99)).step([1e-6] * COUNT, clip_norm=1.0)
    # A rate that bfloat16 would round away.
    assert not any(half.adapter(1)[key].equal(value) for key, value in before.items())


@pytest.mark.gpu
def test_a_gpu_finds_what_the_cpu_finds(tiny: Path) -> None:
    here = made(tiny)
    moved = Population(
        load(tiny, torch.bfloat16).to("cuda"),  # pyright: ignore[reportArgumentType]
        count=COUNT,
        rank=RANK,
        alpha=ALPHA,
        target_modules=TARGETS,
        seeds=range(COUNT),
    )
    for member in range(COUNT):
        moved.replace(member, here.adapter(member))
    rows = [row for member in range(COUNT) for row in rows_of(member, 4, seed=member)]
    teach(here, rows)
    teach(moved, rows)
    for member in range(COUNT):
        found = moved.gradients_G_P[member].cpu()
        assert torch.cosine_similarity(found, here.gradients_G_P[member], dim=0) > 0.98
    assert all(MemberAdam(moved, betas=(0.9, 0.99)).step([1e-3] * COUNT, clip_norm=1.0))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"target_modules": ["q_proj", "w_proj"]}, r"found none named \['w_proj'\]"),
        ({"target_modules": ["q_proj", "lm_head"]}, "below the output head"),
        ({"seeds": [1]}, "a seed for each, found 2 and 1"),
        ({"count": 0, "seeds": []}, "at least one member"),
    ],
)
def test_a_population_that_cannot_be_is_refused(
    tiny: Path, changed: dict[str, Any], message: str
) -> None:
    given = {"count": 2, "rank": 2, "alpha": 4.0, "target_modules": ["q_proj"], "seeds": [1, 2]}
    with pytest.raises(ValueError, match=message):
        Population(load(tiny), **(given | changed))


def test_wrong_orders_are_refused_and_change_nothing(tiny: Path) -> None:
    population = made(tiny)
    before = population.factors_G_P.clone()
    for row in (Row(0, [], [5]), Row(0, [5], []), Row(4, [5], [5]), Row(-1, [5], [5])):
        with pytest.raises(ValueError, match="at least one token of prompt and of completion"):
            population.logprobs([row])
    whole = population.adapter(0)
    key = next(iter(whole))
    for wrong in ({**whole, key: whole[key][:2]}, {**whole, "more": whole[key]}, {}):
        with pytest.raises(ValueError, match="in the population's shape"):
            population.replace(0, wrong)
    with pytest.raises(ValueError, match="a rate for each of 3 members"):
        MemberAdam(population, betas=(0.9, 0.99)).step([0.1], clip_norm=1.0)
    with pytest.raises(ValueError, match="wanted the 0 tokens of the rows, found 2"):
        population.model(input_ids=torch.tensor([[5, 6]]))
    assert population.factors_G_P.equal(before)
    logprobs_N_T, mask_N_T = population.logprobs([])
    assert logprobs_N_T.shape == mask_N_T.shape == (0, 0)


def test_the_shape_of_pockets_adapters_is_what_its_scorer_wants(tmp_path: Path) -> None:
    shape = read_dropin(POCKET).manifest.adapter
    population = Population(
        load(POCKET / "base"),
        count=2,
        rank=shape.rank,
        alpha=shape.alpha,
        target_modules=shape.target_modules,
        seeds=[1, 2],
    )
    population.save(0, tmp_path)
    norm = check(
        tmp_path,
        rank=shape.rank,
        alpha=shape.alpha,
        target_modules=shape.target_modules,
        base_sha256=read_dropin(POCKET).manifest.base.sha256,
    )
    assert norm == 0  # it is the base

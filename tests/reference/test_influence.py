"""Influence from one pass against one backward a question, and by hand."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.modeling_utils import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from training.influence import (
    Influence,
    SecondMoment,
    adamw_direction,
    cosine,
    dot,
    influence,
    preconditioned_cosine,
    preconditioned_dot,
    second_moment,
    target_gradient,
)
from training.question_gradients import TOGETHER, MicroBatch, lora_factors, measure_questions
from training.reliability import (
    gradient_reliability,
    next_target_count,
    score_reliability,
    spearman_brown,
    why_unreliable,
)

# PEFT asks transformers for an attribute that transformers warns about.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SHAPE = {
    "vocab_size": 30,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "initializer_range": 0.3,
}
QUESTIONS, ANSWERS = 6, 4
CONSTANT = 3  # the question whose rewards are all equal
BETA2, EPSILON, STEPS = 0.999, 1e-8, 3


@dataclass(frozen=True)
class Answer:
    question: int
    prompt: list[int]
    tokens: list[int]
    weight: float  # of each token's log-probability: the advantage over the normaliser


def a_model(kind: str = "qwen3", dtype: torch.dtype = torch.float64, **lora: Any) -> PeftModel:
    torch.manual_seed(0)
    if kind == "qwen3":
        base: Any = Qwen3ForCausalLM(Qwen3Config(**SHAPE))
    else:
        base = LlamaForCausalLM(LlamaConfig(**SHAPE))
    shape = {"r": 3, "target_modules": PROJECTIONS, "init_lora_weights": False} | lora
    model = get_peft_model(base, LoraConfig(**shape))
    assert isinstance(model, PeftModel)
    return without_rounding(model.train().to(dtype))


def without_rounding(model: PeftModel) -> PeftModel:
    """Norms that compute in the model's own precision: those of transformers do in float32."""
    for name, module in list(model.named_modules()):
        if isinstance(module, Qwen3RMSNorm | LlamaRMSNorm):
            norm = nn.RMSNorm(module.weight.shape[0], eps=1e-6, dtype=module.weight.dtype)
            norm.requires_grad_(False)
            parent, _, child = name.rpartition(".")
            model.get_submodule(parent).set_submodule(child, norm)
    return model


def some_answers(seed: int = 0, questions: int = QUESTIONS) -> list[Answer]:
    """Prompts of 1 to 6 tokens, completions of 1 to 7."""
    dice = torch.Generator().manual_seed(seed)

    def tokens(longest: int) -> list[int]:
        count = int(torch.randint(1, longest + 1, (), generator=dice))
        return torch.randint(0, SHAPE["vocab_size"], (count,), generator=dice).tolist()

    answers = []
    for question in range(questions):
        prompt = tokens(6)
        advantages = torch.randn(ANSWERS, generator=dice).tolist()
        for advantage in advantages:
            weight = 0.0 if question == CONSTANT else advantage / 20
            answers.append(Answer(question, prompt, tokens(7), weight))
    return answers


def loss_of(model: nn.Module, tokens_B_T: Tensor, weights_B_T: Tensor, **inputs: Any) -> Tensor:
    logits_B_T_V = model(input_ids=tokens_B_T, use_cache=False, **inputs).logits
    logprobs_B_T_V = logits_B_T_V[:, :-1].log_softmax(-1)
    logprobs_B_T = logprobs_B_T_V.gather(-1, tokens_B_T[:, 1:, None])[..., 0]
    return -(logprobs_B_T * weights_B_T[:, 1:].to(logprobs_B_T.dtype)).sum()


def padded(model: nn.Module, answers: Sequence[Answer]) -> MicroBatch:
    """One row an answer, padded on the left."""
    width = max(len(answer.prompt + answer.tokens) for answer in answers)
    rows: list[tuple[list[int], list[float], list[int]]] = []
    for answer in answers:
        ids = answer.prompt + answer.tokens
        left = width - len(ids)
        weights = [0.0] * (width - len(answer.tokens)) + [answer.weight] * len(answer.tokens)
        rows.append(([0] * left + ids, weights, [-1] * left + [answer.question] * len(ids)))
    tokens_B_T, weights_B_T, questions_B_T = (
        torch.tensor(part) for part in zip(*rows, strict=True)
    )
    mask_B_T = (questions_B_T >= 0).long()
    positions_B_T = (mask_B_T.cumsum(1) - 1).clamp(min=0)
    return MicroBatch(
        questions_B_T,
        lambda: loss_of(
            model, tokens_B_T, weights_B_T, attention_mask=mask_B_T, position_ids=positions_B_T
        ),
    )


def packed(model: nn.Module, answers: Sequence[Answer], rows: int = 3) -> MicroBatch:
    """Answers side by side in a few rows, those of a question in any of them."""
    lanes: list[list[tuple[int, float, int, int]]] = [[] for _ in range(rows)]
    for number, answer in enumerate(answers):
        ids = answer.prompt + answer.tokens
        weights = [0.0] * len(answer.prompt) + [answer.weight] * len(answer.tokens)
        owners, places = [answer.question] * len(ids), range(len(ids))
        lanes[number % rows] += zip(ids, weights, owners, places, strict=True)
    width = max(len(lane) for lane in lanes)
    whole = [lane + [(0, 0.0, -1, 0)] * (width - len(lane)) for lane in lanes]
    tokens_B_T, weights_B_T, questions_B_T, positions_B_T = (
        torch.tensor([[token[part] for token in lane] for lane in whole]) for part in range(4)
    )
    # Where positions begin anew, transformers lets a sequence end.
    return MicroBatch(
        questions_B_T, lambda: loss_of(model, tokens_B_T, weights_B_T, position_ids=positions_B_T)
    )


def one_by_one(model: nn.Module, answers: Sequence[Answer], questions: int) -> list[dict[str, Any]]:
    """Each question's gradient, by one backward of its own, its answers apart."""
    gradients = []
    for question in range(questions):
        model.zero_grad()
        for answer in answers:
            if answer.question == question:
                padded(model, [answer]).loss().backward()
        factors = lora_factors(model)
        assert all(factor.grad is not None for factor in factors.values())
        gradients.append({name: factor.grad for name, factor in factors.items()})
    model.zero_grad()
    return gradients


def flat(gradient: Mapping[str, Any], names: Sequence[str]) -> Tensor:
    return torch.cat([gradient[name].flatten() for name in names])


def the_moment(model: nn.Module, steps: int = STEPS) -> SecondMoment:
    dice = torch.Generator().manual_seed(9)
    values = {
        name: (torch.rand(factor.shape, generator=dice) * 1e-4 * steps).to(factor.dtype)
        for name, factor in lora_factors(model).items()
    }
    return SecondMoment(values, steps=steps, beta2=BETA2, epsilon=EPSILON)


def scores(found: Influence) -> dict[str, Tensor]:
    return {
        "dot": dot(found),
        "cosine": cosine(found),
        "preconditioned dot": preconditioned_dot(found),
        "preconditioned cosine": preconditioned_cosine(found),
    }


def wanted_scores(
    gradients: list[dict[str, Any]], target: Mapping[str, Tensor], moment: SecondMoment
) -> dict[str, Tensor]:
    """Straight from the formulas of the method."""
    names = list(target)
    t, v = flat(target, names), flat(moment.values, names)
    wanted: dict[str, list[Tensor]] = {}
    for gradient in gradients:
        g = flat(gradient, names)
        v_now = moment.beta2 * v + (1 - moment.beta2) * g**2
        step = g / ((v_now / (1 - moment.beta2 ** (moment.steps + 1))).sqrt() + moment.epsilon)
        for kind, direction in (("", g), ("preconditioned ", step)):
            wanted.setdefault(kind + "dot", []).append(t @ direction)
            lengths = t.norm() * direction.norm()
            ratio = t @ direction / lengths if lengths > 0 else lengths
            wanted.setdefault(kind + "cosine", []).append(ratio)
    return {kind: torch.stack(values).double() for kind, values in wanted.items()}


def close(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], tolerance: float) -> None:
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert tensor.abs().max() > 100 * tolerance, name
        torch.testing.assert_close(found[name], tensor, rtol=tolerance, atol=tolerance)


def in_layout(model: nn.Module, answers: list[Answer], layout: str) -> list[MicroBatch]:
    if layout == "padded":
        return [padded(model, answers)]
    if layout == "packed":
        return [packed(model, answers)]
    # Questions over several micro-batches: answer 0 of each in the first, and so on.
    by_turn = [answers[turn::ANSWERS] for turn in range(ANSWERS)]
    # Question 0 is complete after the first two.
    by_turn[1] += [answer for answer in by_turn[2] + by_turn[3] if answer.question == 0]
    by_turn[2:] = [[a for a in turn if a.question != 0] for turn in by_turn[2:]]
    return [(padded if turn % 2 else packed)(model, chosen) for turn, chosen in enumerate(by_turn)]


@pytest.mark.parametrize("layout", ["padded", "packed", "split"])
@pytest.mark.parametrize(
    ("kind", "checkpointing"),
    [("qwen3", None), ("llama", None), ("qwen3", "non-reentrant"), ("qwen3", "reentrant")],
)
def test_one_pass_gives_the_scores_of_one_backward_a_question(
    kind: str, layout: str, checkpointing: str | None
) -> None:
    model, answers = a_model(kind), some_answers()
    gradients = one_by_one(model, answers, QUESTIONS)
    target = one_by_one(model, some_answers(seed=1, questions=1), 1)[0]
    if checkpointing:
        base = model.get_base_model()
        assert isinstance(base, PreTrainedModel)
        base.activation_checkpointing_enable({"use_reentrant": checkpointing == "reentrant"})
        base.enable_input_require_grads()
    passes: list[str] = []
    attention = model.get_submodule("base_model.model.model.layers.0.self_attn")
    attention.register_forward_hook(lambda *_: passes.append("forward"))
    moment, batches = the_moment(model), in_layout(model, answers, layout)
    found = influence(model, batches, questions=QUESTIONS, target=target, moment=moment)
    assert len(passes) == len(batches) * (2 if checkpointing else 1)
    close(scores(found), wanted_scores(gradients, target, moment), 1e-12)
    assert [mode[CONSTANT].item() for mode in scores(found).values()] == [0.0] * 4
    summed = {name: torch.stack([g[name] for g in gradients]).sum(0) for name in target}
    close(found.gradient, summed, 1e-12)


@pytest.mark.parametrize("layout", ["padded", "packed", "split"])
def test_one_pass_is_as_exact_in_single_precision(layout: str) -> None:
    model, answers = a_model(dtype=torch.float32), some_answers()
    gradients = one_by_one(model, answers, QUESTIONS)
    target = one_by_one(model, some_answers(seed=1, questions=1), 1)[0]
    moment = the_moment(model)
    batches = in_layout(model, answers, layout)
    found = influence(model, batches, questions=QUESTIONS, target=target, moment=moment)
    wanted = wanted_scores(gradients, target, moment)
    for mode in ("cosine", "preconditioned cosine"):
        torch.testing.assert_close(scores(found)[mode], wanted[mode], rtol=0, atol=1e-6)
    summed = {name: torch.stack([g[name] for g in gradients]).sum(0) for name in target}
    names = list(target)
    wanted_D = flat(summed, names)
    # Either is rounded: a sum in another order differs by a few times float32's 1e-7 of its terms.
    assert (flat(found.gradient, names) - wanted_D).norm() < 5e-6 * wanted_D.norm()


def test_more_questions_than_are_formed_at_once_have_their_own_scores() -> None:
    model, questions = a_model(), TOGETHER + 3
    answers = some_answers(questions=questions)
    gradients = one_by_one(model, answers, questions)
    target, moment = gradients[0], the_moment(model)
    batches = [packed(model, answers)]
    found = influence(model, batches, questions=questions, target=target, moment=moment)
    close(scores(found), wanted_scores(gradients, target, moment), 1e-12)
    assert cosine(found)[0].item() == pytest.approx(1.0, abs=1e-12)


def test_the_summed_gradient_takes_the_step_that_an_ordinary_backward_takes() -> None:
    answers = some_answers()
    stepped = []
    for ordinary in (True, False):
        model = a_model()
        factors = lora_factors(model)
        optimiser = torch.optim.AdamW(factors.values(), lr=1e-2)
        batch = packed(model, answers)
        if ordinary:
            batch.loss().backward()
        else:
            moment = second_moment(model, optimiser)
            target = {name: torch.ones_like(factor) for name, factor in factors.items()}
            found = influence(model, [batch], questions=QUESTIONS, target=target, moment=moment)
            assert all(factor.grad is None for factor in factors.values())
            for name, factor in factors.items():
                factor.grad = found.gradient[name]
        optimiser.step()
        stepped.append({name: factor.detach() for name, factor in factors.items()})
    for name, factor in stepped[0].items():
        torch.testing.assert_close(stepped[1][name], factor, rtol=0, atol=1e-9)


def test_the_model_is_as_it_was_after_a_pass_and_after_a_failed_one() -> None:
    model, answers = a_model(), some_answers()
    before = {name: type(module) for name, module in model.named_modules()}
    batch = packed(model, answers)

    def failing() -> Tensor:
        raise RuntimeError("out of memory")

    measure_questions(
        model, [batch], questions=QUESTIONS, measure=lambda _, g: g.sum((1, 2))[:, None]
    )
    assert {name: type(module) for name, module in model.named_modules()} == before
    with pytest.raises(RuntimeError, match="out of memory"):
        target_gradient(model, [replace(batch, loss=failing)], questions=QUESTIONS)
    assert {name: type(module) for name, module in model.named_modules()} == before


def test_only_the_active_adapter_of_two_is_measured() -> None:
    model, answers = a_model(), some_answers()
    wanted = target_gradient(model, [packed(model, answers)], questions=QUESTIONS)
    model.add_adapter("other", LoraConfig(r=2, target_modules=["q_proj"]))
    model.set_adapter("default")
    found = target_gradient(model, [packed(model, answers)], questions=QUESTIONS)
    close(found.gradient, wanted.gradient, 1e-12)
    assert not any("other" in name for name in found.gradient)


def test_directions_are_those_that_adamw_would_take_without_its_first_moment() -> None:
    # By hand: beta2 0.5, moment 8 and 0, gradients 4 and 0, after one step: 1 - 0.5^2 = 0.75.
    moment_O_I = torch.tensor([[8.0, 0.0]])
    gradients_U_O_I = torch.tensor([[[4.0, 0.0]], [[-4.0, 0.0]], [[0.0, 3.0]]])
    found = adamw_direction(gradients_U_O_I, moment_O_I, steps=1, beta2=0.5, epsilon=1.0)
    first = 4 / (math.sqrt((0.5 * 8 + 0.5 * 16) / 0.75) + 1)  # 4 / (4 + 1)
    third = 3 / (math.sqrt(0.5 * 9 / 0.75) + 1)
    assert first == pytest.approx(0.8)
    assert found.flatten().tolist() == pytest.approx([first, 0, -first, 0, 0, third])


def test_before_the_first_step_directions_are_signs() -> None:
    gradients_U_O_I = torch.tensor([[[1e-3, -2.0, 0.0]]])
    found = adamw_direction(
        gradients_U_O_I, torch.zeros(1, 3), steps=0, beta2=BETA2, epsilon=EPSILON
    )
    assert found.flatten().tolist() == pytest.approx([1.0, -1.0, 0.0], abs=1e-4)


def test_the_second_moment_is_the_live_one_of_the_optimiser() -> None:
    model, answers = a_model(), some_answers()
    factors = lora_factors(model)
    optimiser = torch.optim.AdamW(factors.values(), lr=1e-2, betas=(0.9, 0.5), eps=1e-6)
    fresh = second_moment(model, optimiser)
    assert (fresh.steps, fresh.beta2, fresh.epsilon) == (0, 0.5, 1e-6)
    assert all(not value.any() for value in fresh.values.values())
    assert not optimiser.state  # looking has not started it
    wanted = {name: torch.zeros_like(factor) for name, factor in factors.items()}
    for _ in range(2):
        optimiser.zero_grad()
        packed(model, answers).loss().backward()
        for name, factor in factors.items():
            assert factor.grad is not None
            wanted[name] = 0.5 * wanted[name] + 0.5 * factor.grad**2
        optimiser.step()
    found = second_moment(model, optimiser)
    assert found.steps == 2
    for name, value in wanted.items():
        torch.testing.assert_close(found.values[name], value)


def test_the_score_is_the_change_of_the_target_loss_that_a_step_makes() -> None:
    """The score is meant to foretell this; first order, so for a small step."""
    answers, targets = some_answers(), some_answers(seed=1)
    changes, foretold = [], []
    for question in (0, 1, 2, 4, 5):
        model = a_model()
        factors = lora_factors(model)
        # Without a first moment, AdamW's step is the direction itself.
        optimiser = torch.optim.AdamW(factors.values(), lr=1e-6, betas=(0.0, 0.9), weight_decay=0)
        for batch in (packed(model, some_answers(seed=2)), packed(model, some_answers(seed=3))):
            optimiser.zero_grad()
            batch.loss().backward()
            optimiser.step()
        target_batch = padded(model, targets)
        target = target_gradient(model, [target_batch], questions=QUESTIONS)
        asked = packed(model, [a for a in answers if a.question == question])
        moment = second_moment(model, optimiser)
        found = influence(
            model, [asked], questions=QUESTIONS, target=target.gradient, moment=moment
        )
        with torch.no_grad():
            before = target_batch.loss().item()
        optimiser.zero_grad()
        asked.loss().backward()
        optimiser.step()
        with torch.no_grad():
            changes.append((before - target_batch.loss().item()) / 1e-6)
        foretold.append(preconditioned_dot(found)[question].item())
    assert min(abs(value) for value in foretold) > 1e-3
    assert changes == pytest.approx(foretold, rel=1e-2)


def test_lengths_of_the_target_gradient_are_those_of_each_question() -> None:
    model, answers = a_model(), some_answers()
    gradients = one_by_one(model, answers, QUESTIONS)
    found = target_gradient(model, [packed(model, answers)], questions=QUESTIONS)
    names = list(found.gradient)
    lengths = [flat(gradient, names).norm().item() for gradient in gradients]
    assert found.lengths_Q.tolist() == pytest.approx(lengths, rel=1e-12)
    assert found.length == pytest.approx(flat(found.gradient, names).norm().item(), rel=1e-12)


def test_gradient_reliability_is_the_mean_over_all_splits_into_halves() -> None:
    gradients_Q_D = torch.randn(6, 4, generator=torch.Generator().manual_seed(2)) + 0.5
    total_D = gradients_Q_D.sum(0)
    halves = []
    for chosen in itertools.combinations(range(6), 3):
        half_D = gradients_Q_D[list(chosen)].sum(0)
        halves.append(4 * (half_D @ (total_D - half_D) / (total_D @ total_D)).item())
    found = gradient_reliability(gradients_Q_D.norm(dim=1), total_D.norm().item())
    assert found == pytest.approx(sum(halves) / len(halves), abs=1e-6)


def test_gradient_reliability_by_hand() -> None:
    # (3, 4) and (3, -4): cosine -7/25, so 2 c / (1 + c) = -14/18.
    assert spearman_brown(-7 / 25) == pytest.approx(-14 / 18)
    assert gradient_reliability(torch.tensor([5.0, 5.0]), 6.0) == pytest.approx(-14 / 18)
    # Equal gradients agree wholly; orthogonal ones not at all.
    assert gradient_reliability(torch.tensor([1.0, 1.0, 1.0]), 3.0) == pytest.approx(1.0)
    assert gradient_reliability(torch.tensor([1.0, 1.0]), math.sqrt(2)) == pytest.approx(0.0)
    # Nothing can be said about one question, or about none with a gradient.
    assert gradient_reliability(torch.tensor([1.0]), 1.0) == 0.0
    assert gradient_reliability(torch.zeros(4), 0.0) == 0.0
    assert spearman_brown(-1.0) == -math.inf


def test_score_reliability_is_the_halves_correlation_of_the_whole() -> None:
    # Deviations (-1, 0, 1) and (-1, 1, 0): correlation 1/2, so 1 / 1.5.
    first_Q, second_Q = torch.tensor([1.0, 2, 3]), torch.tensor([0.0, 2, 1])
    assert score_reliability(first_Q, second_Q) == pytest.approx(2 / 3)
    assert score_reliability(first_Q, 5 * first_Q - 1) == pytest.approx(1.0)
    assert score_reliability(first_Q, torch.ones(3)) == 0.0
    assert score_reliability(first_Q[:2], second_Q[:2]) == 0.0


def test_the_number_of_target_questions_follows_their_reliability() -> None:
    def after(reliability: float, count: int = 100) -> int:
        return next_target_count(count, reliability, smallest=40, largest=400, wanted=0.8)

    assert after(0.8) == 100
    # Odds of 2 instead of 4: twice the questions. Odds of 6: two thirds.
    assert after(2 / 3) == 200
    assert after(6 / 7) == 67
    # At most by half or double at a time, and between the ends.
    assert after(0.1) == after(0.0) == after(-0.4) == 200
    assert after(0.999) == after(1.0) == 50
    assert after(0.1, count=300) == 400
    assert after(0.99, count=50) == 40


def test_scores_that_cannot_be_trusted_are_told_why() -> None:
    assert why_unreliable(0.7) is None
    assert why_unreliable(0.3, 0.3) is None
    assert why_unreliable(0.29) == (
        "wanted a reliability of the target gradient of 0.3 or more, found 0.29"
    )
    assert "the scores" in str(why_unreliable(0.9, 0.1))
    assert "nan" in str(why_unreliable(math.nan))


def test_a_prompt_that_is_nobodys_is_an_error_since_its_gradient_would_be_lost() -> None:
    model, answers = a_model(), some_answers()
    batch = padded(model, answers)
    questions_B_T = batch.questions_B_T.clone()
    questions_B_T[:, -8:-7] = -1
    with pytest.raises(ValueError, match="prompts too, found a gradient"):
        target_gradient(model, [replace(batch, questions_B_T=questions_B_T)], questions=QUESTIONS)


def test_wrong_micro_batches_are_errors() -> None:
    model, answers = a_model(), some_answers()
    batch = padded(model, answers)
    with pytest.raises(ValueError, match="numbered 0 to 3, -1 for padding, found -1 to 5"):
        target_gradient(model, [batch], questions=4)
    twice = replace(batch, loss=lambda: batch.loss() + batch.loss())
    with pytest.raises(ValueError, match="run the model once"):
        target_gradient(model, [twice], questions=QUESTIONS)
    fewer = replace(batch, questions_B_T=batch.questions_B_T[1:])
    with pytest.raises(ValueError, match="on those rows"):
        target_gradient(model, [fewer], questions=QUESTIONS)
    other = a_model()
    foreign = replace(batch, loss=padded(other, answers).loss)
    with pytest.raises(ValueError, match="run the model that was given"):
        target_gradient(model, [foreign], questions=QUESTIONS)


def test_what_is_not_plain_lora_is_an_error() -> None:
    for model in (
        a_model(use_dora=True),
        a_model(target_modules=["q_proj", "embed_tokens"]),
        a_model(modules_to_save=["lm_head"]),
    ):
        with pytest.raises(ValueError, match="factors of plain LoRA"):
            lora_factors(model)
    with pytest.raises(ValueError, match="nothing trained"):
        lora_factors(a_model().requires_grad_(False))
    with pytest.raises(ValueError, match="float32 or float64"):
        lora_factors(a_model(dtype=torch.bfloat16))


def test_a_target_or_a_moment_of_another_adapter_is_an_error() -> None:
    model, answers = a_model(), some_answers()
    batches = [packed(model, answers)]
    target = target_gradient(model, batches, questions=QUESTIONS).gradient
    moment = the_moment(model)
    gone = next(iter(target))
    fewer = {name: gradient for name, gradient in target.items() if name != gone}
    with pytest.raises(ValueError, match="wanted a target gradient of the parameters"):
        influence(model, batches, questions=QUESTIONS, target=fewer, moment=moment)
    wider = the_moment(a_model(r=4))
    with pytest.raises(ValueError, match="wanted a second moment of the parameters"):
        influence(model, batches, questions=QUESTIONS, target=target, moment=wider)


def test_an_optimiser_that_is_not_one_adamw_over_the_factors_is_an_error() -> None:
    model = a_model()
    factors = list(lora_factors(model).values())
    groups = [{"params": factors[:2]}, {"params": factors[2:], "betas": (0.9, 0.99)}]
    wrong = [
        torch.optim.AdamW(factors[1:]),
        torch.optim.AdamW(factors, amsgrad=True),
        torch.optim.AdamW(groups),
    ]
    for optimiser in wrong:
        with pytest.raises(ValueError, match="wanted one AdamW without amsgrad"):
            second_moment(model, optimiser)


def test_without_tokens_there_is_no_influence() -> None:
    model = a_model()
    target = {name: torch.ones_like(factor) for name, factor in lora_factors(model).items()}
    found = influence(model, [], questions=2, target=target, moment=the_moment(model))
    assert preconditioned_cosine(found).tolist() == [0.0, 0.0]
    assert not any(gradient.any() for gradient in found.gradient.values())

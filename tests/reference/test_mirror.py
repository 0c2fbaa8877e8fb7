"""A member in the mirror: its gradients are the population's, its probe undoes what it does."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from training.frontier import Frontier
from training.influence import influence, preconditioned_cosine, target_gradient
from training.journal import Job
from training.match import Text
from training.member_adam import MemberAdam
from training.mirror import Answer, Mirror
from training.models import load_base
from training.population import Population, Row
from training.probe import Step, probe, rank_correlation, true_influence
from training.question_gradients import lora_factors
from training.worths import WORTHS

# PEFT asks transformers for an attribute that transformers warns about.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
MEMBER, QUESTIONS, BETAS = 1, 3, (0.9, 0.999)
NORMALISER = 20.0


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": 30,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "initializer_range": 0.3,
    }
    folder = tmp_path_factory.mktemp("base")
    Qwen3ForCausalLM(Qwen3Config(**shape)).save_pretrained(folder)
    return Job(
        recipe="infuser",
        seed=0,
        rollouts=1,
        tokens=None,
        seconds=1,
        threads=1,
        device="cpu",
        base=folder,
        target=Path("none"),
        rank=3,
        alpha=6,
        target_modules=TARGETS,
        checkpoint=None,
        smoke=False,
    )


def a_population(job: Job) -> Population:
    """Two members that have learnt something: B is not 0."""
    population = Population(
        load_base(job),
        count=2,
        rank=job.rank,
        alpha=job.alpha,
        target_modules=job.target_modules,
        seeds=[1, 2],
    )
    dice = torch.Generator().manual_seed(3)
    noise_G_P = torch.randn(population.factors_G_P.shape, generator=dice)
    population.factors_G_P += 0.05 * noise_G_P
    return population


def some_answers(population: Population) -> list[Answer]:
    """Four answers to each question, with the log-probabilities that sampling would give."""
    dice = torch.Generator().manual_seed(4)

    def tokens(count: int) -> list[int]:
        return torch.randint(0, 30, (count,), generator=dice).tolist()

    answers = []
    for question in range(QUESTIONS):
        prompt = tokens(3 + question)
        for number, advantage in enumerate((0.75, -0.25, -0.5, 0.0)):
            row = Row(MEMBER, prompt, tokens(2 + number))
            logprobs_1_T, _ = population.logprobs([row])
            answers.append(Answer(question, Text(row, logprobs_1_T[0].tolist(), ""), advantage))
    return answers


def one_by_one(population: Population, answers: list[Answer], question: int) -> Tensor:
    """A question's gradient, by a backward pass of the population's own."""
    population.gradients_G_P.zero_()
    for answer in answers:
        if answer.question == question:
            logprobs_1_T, _ = population.logprobs([answer.text.row])
            (-(answer.advantage / NORMALISER) * logprobs_1_T.sum()).backward()
    gradient_P = population.gradients_G_P[MEMBER].clone()
    population.gradients_G_P.zero_()
    return gradient_P


def test_scores_and_gradients_are_those_of_a_loop_over_the_population(job: Job) -> None:
    population = a_population(job)
    answers = some_answers(population)
    optimiser = MemberAdam(population, betas=BETAS)
    dice = torch.Generator().manual_seed(5)
    for _ in range(3):  # so that there are moments
        noise_G_P = torch.randn(population.factors_G_P.shape, generator=dice)
        population.gradients_G_P.copy_(0.01 * noise_G_P)
        optimiser.step([0.0, 1e-3], clip_norm=1.0)
    adapter = population.adapter(MEMBER)
    mirror = Mirror(job, temperature=1.0, cap=2.0)
    mirror.show(adapter)
    target_P = torch.randn(len(population.factors_G_P[MEMBER]), generator=dice)
    moment = mirror.moment(optimiser.state_dict(), MEMBER, adapter, BETAS[1])
    assert moment.steps == 3
    answers = [Answer(a.question, population_text(population, a), a.advantage) for a in answers]
    found = influence(
        mirror.model,
        mirror.batches(answers, normaliser=NORMALISER),
        questions=QUESTIONS,
        target=mirror.by_name(target_P, adapter),
        moment=moment,
    )
    gradients = [one_by_one(population, answers, question) for question in range(QUESTIONS)]
    wanted_P = torch.stack(gradients).sum(0)
    torch.testing.assert_close(
        mirror.as_row(found.gradient, adapter), wanted_P, rtol=1e-4, atol=1e-6
    )
    v_P = optimiser.state_dict()[f"{MEMBER}.exp_avg_sq"]
    for question, g_P in enumerate(gradients):
        now_P = BETAS[1] * v_P + (1 - BETAS[1]) * g_P**2
        step_P = g_P / ((now_P / (1 - BETAS[1] ** 4)).sqrt() + 1e-8)
        cosine = (step_P @ target_P / (step_P.norm() * target_P.norm())).item()
        score = preconditioned_cosine(found)[question].item()
        assert score == pytest.approx(cosine, rel=1e-4, abs=1e-6)


def population_text(population: Population, answer: Answer) -> Text:
    """The answer as the member, changed since, would have sampled it."""
    logprobs_1_T, _ = population.logprobs([answer.text.row])
    return Text(answer.text.row, logprobs_1_T[0].tolist(), "")


def test_an_importance_weight_is_capped(job: Job) -> None:
    population = a_population(job)
    adapter = population.adapter(MEMBER)
    mirror = Mirror(job, temperature=1.0, cap=2.0)
    mirror.show(adapter)

    def gradient_of(shift: float) -> Tensor:
        (answer, *_) = some_answers(population)
        logprobs = [value + shift for value in answer.text.logprobs]
        moved = Answer(0, Text(answer.text.row, logprobs, ""), answer.advantage)
        batches = mirror.batches([moved], normaliser=NORMALISER)
        found = target_gradient(mirror.model, batches, questions=1)
        return mirror.as_row(found.gradient, adapter)

    as_sampled = gradient_of(0.0)
    # Sampled at half the probability: weight 2. At a hundredth: still 2. At twice: 1/2.
    torch.testing.assert_close(gradient_of(-0.693147), 2 * as_sampled, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(gradient_of(-4.6), 2 * as_sampled, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(gradient_of(0.693147), as_sampled / 2, rtol=1e-3, atol=1e-6)


def test_a_probe_takes_the_optimiser_s_step_and_undoes_it(job: Job) -> None:
    population = a_population(job)
    answers = some_answers(population)
    optimiser = MemberAdam(population, betas=BETAS)
    population.gradients_G_P.copy_(torch.ones_like(population.factors_G_P))
    optimiser.step([0.0, 1e-3], clip_norm=1.0)
    adapter, moments = population.adapter(MEMBER), optimiser.state_dict()
    mirror = Mirror(job, temperature=1.0, cap=2.0)
    mirror.show(adapter)
    targets = [Row(MEMBER, [1, 2, 3], [4, 5]), Row(MEMBER, [6], [7, 8, 9])]
    answers = [Answer(a.question, population_text(population, a), a.advantage) for a in answers]
    step = Step(MEMBER, adapter, moments, 1e-2, BETAS, 1.0, NORMALISER)
    changes = true_influence(mirror, answers, [0, 2], targets, step)
    shown = lora_factors(mirror.model)
    for key, tensor in adapter.items():
        assert torch.equal(shown[key.removesuffix(".weight") + ".default.weight"], tensor)

    def likelihood() -> float:
        with torch.no_grad():
            return sum(population.logprobs([row])[0].sum().item() for row in targets) / 2

    for question, change in zip((0, 2), changes, strict=True):
        before = likelihood()
        kept = population.factors_G_P.clone()
        population.gradients_G_P[MEMBER] = one_by_one(population, answers, question)
        optimiser.load_state_dict(moments)
        optimiser.step([0.0, 1e-2], clip_norm=1.0)
        assert change == pytest.approx(likelihood() - before, rel=1e-2, abs=1e-4)
        assert abs(change) > 1e-3
        population.factors_G_P.copy_(kept)


def test_a_probe_is_of_questions_from_the_least_to_the_greatest_score(job: Job) -> None:
    population = a_population(job)
    answers = some_answers(population)
    adapter = population.adapter(MEMBER)
    mirror = Mirror(job, temperature=1.0, cap=2.0)
    mirror.show(adapter)
    targets = [Row(MEMBER, [1, 2, 3], [4, 5])]
    step = Step(MEMBER, adapter, {}, 1e-2, BETAS, 1.0, NORMALISER)
    found = probe(mirror, [0.3, -0.2, 0.1], answers, targets, step, number=2)
    assert found["scores"] == [0.3, -0.2]
    assert found["changes"] == true_influence(mirror, answers, [0, 1], targets, step)
    assert found["rank_correlation"] is None  # of two


def test_ranks_correlate_whatever_the_values() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 20.5, 1000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    # Ranks 0 1.5 1.5 3 and 0 1 2 3: centred -1.5 0 0 1.5 and -1.5 -.5 .5 1.5; 4.5 / sqrt(4.5 * 5).
    assert rank_correlation([1, 5, 5, 9], [1, 2, 3, 4]) == pytest.approx(4.5 / 22.5**0.5)
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_a_frontier_asks_where_problems_are_solved_sometimes_and_goes_on() -> None:
    problems = [{"domain": "x", "depth": depth, "number": n} for depth in (1, 2) for n in range(9)]
    frontier = Frontier(problems)
    easy = [problem for problem in problems if problem["depth"] == 1]
    hard = [problem for problem in problems if problem["depth"] == 2]
    frontier.note(easy + hard, [False] * 9 + [True] * 9)
    drawn = frontier.draw(200, random.Random(0))
    assert sum(problem["depth"] == 2 for problem in drawn) > 190
    other = Frontier(problems)
    other.restore(json.loads(json.dumps(frontier.state())))
    assert other.draw(200, random.Random(0)) == drawn
    with pytest.raises(ValueError, match="wanted target problems of"):
        Frontier(problems, ["y"])


def test_worths_against_numbers_by_hand() -> None:
    dice = random.Random(0)
    half, none = ["right", "wrong"], ["wrong", "malformed"]
    assert WORTHS["influence"](half, 0.3, dice) == 0.3
    assert WORTHS["variance"](half, 0.3, dice) == 1  # v = 1/4
    assert WORTHS["variance"](none, 0.0, dice) == pytest.approx(0.0439369)  # exp(-1/16 / 0.02)
    assert WORTHS["difficulty"](half, 0.3, dice) == 1
    assert WORTHS["difficulty"](none, 0.0, dice) == 0
    assert WORTHS["difficulty"](["right"] * 3 + ["wrong"], 0.0, dice) == 0.5
    assert WORTHS["chance"](half, 0.3, random.Random(1)) == random.Random(1).random()

"""INFUSER: a generator writes questions from documents, and is paid for what they teach the solver.

Generator and solver are two LoRA adapters of one base. Each step (arXiv 2606.09052, as its authors'
code has it):

S1. the solver attempts problems of the target set;
S2. the generator writes QUESTIONS questions about each of some documents, and a key for each;
S3. the solver attempts the valid questions;
S4. influence: the gradient of each question's attempts, scaled as AdamW would, against that of the
    target's attempts, at the solver's weights before any update (`training/influence.py`);
S5. the generator learns from its questions' worths (DuGRPO);
S6. the solver learns from the attempts of S3 and S1 (Dr.GRPO), by the gradients that S4 has;
S7. a checkpoint, every CHECKPOINT_EVERY steps.

Where the authors' code is known to fail, this differs: an invalid question is worth less than the
worst valid one about its document; a generator does not learn from scores that are noise; the
target problems that are asked are those that are solved sometimes, as many as a reliable gradient
needs; a resumed run goes on with its moments. Attempts end early where they are all alike.

Rivals are values of the same constants. RIVALS names them: a generator that stays what the base is,
one paid by chance, by the variance of attempts (SPICE), by difficulty with the majority's answer
for the right one (R-Zero), one that reads target problems for documents (R-Few), and none at all.

Left out on purpose: a reference model and its KL penalty, several steps on one batch, and with
them PPO's clipping, which would never act on the solver's one step.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from training.alignment import alignment
from training.dugrpo import FORMS
from training.frontier import Problem
from training.influence import SCORES, Influence, SecondMoment, influence
from training.inquest import inquest, manner
from training.journal import OUT, Job, Journal, read_job
from training.keys import answer_own
from training.lessons import Lesson
from training.match import Text
from training.mirror import Answer, Mirror
from training.models import load_tokenizer, token_counter
from training.passage import Passage
from training.posed import Posed, pose_problems, pose_questions
from training.probe import Step, halved_reliability, probe, solutions
from training.question_rewards import taught_rewards
from training.questionbook import Questionbook
from training.questions import Question, Reason, count_reasons, without_repeats
from training.reliability import why_unreliable
from training.seeds import dice_of, seed_of
from training.stopwatch import Stopwatch
from training.table import Table
from training.target import Target
from training.worths import WORTHS

# A step. The authors have 128 documents and all of 800 target problems, for models that cost more.
DOCUMENTS = 4
QUESTIONS = 8  # about each document, compared with each other: theirs
ATTEMPTS = 8  # at each question and target problem: theirs
SOUNDINGS = 4  # after which attempts end where they are all right, or all wrong; theirs: ATTEMPTS
SOURCE = "documents"  # or "examples": problems of the target in their place
TEMPERATURE = 0.7  # theirs; at 1, half as many questions of the untrained base are valid
MAX_TOKENS = 160  # of a completion; one that is cut off is judged as it is

# The target. How many of its problems are asked adapts to the gradient's reliability.
FEWEST_TARGETS = 8
MOST_TARGETS = 16
# Problems of earlier steps whose attempts are still part of the gradient, taken at the weights of
# now, with importance weights. The authors ask all of the target anew in each step.
REMEMBERED = 48
# Of a step's target problems, those that the solver learns from as well: the hybrid of the paper,
# which its code does not turn on.
PRACTISED = 16
TARGET_DOMAINS = []  # the gradient's; none: all
LABELLED = 0  # problems that have answers, the first ones; 0: all

# The generator.
WORTH = "influence"  # or "chance", "variance", "difficulty": see training/worths.py
SCORE = "preconditioned_cosine"  # theirs; or "cosine", "preconditioned_dot", "dot"
ADVANTAGE = "dugrpo"  # theirs; or "group", "batch", "none": see training/dugrpo.py
MARGIN = 1.0  # what an invalid question is below its document's worst valid one, in deviations
GENERATOR_RATE = 2e-3  # 0: it stays what the base is
GATHERS = 16  # completions with an advantage, from step to step, before it learns from all of them
WARM_UP = 2  # steps before it learns: AdamW knows no sizes before, and its steps are signs

# The solver.
SOLVER_RATE = 3e-3  # the rate of `rlvr` on the same small model; the authors' 2e-6 is a whole one's
LABELS = "key"  # what is right: the generator's key, or the "majority" of the attempts
MID_EOS = 0.0  # less for an attempt that ends without an answer. The hybrid's: 0.5
BETAS = [0.9, 0.999]  # of Adam: theirs
CLIP_NORM = 1.0  # of each member's gradient: theirs
WEIGHT_CAP = 2.0  # of a token's importance weight: theirs
CLIP_RATIO = 0.2  # of probabilities, new to old, where the generator has gathered: theirs

CHECKPOINT_EVERY = 5  # steps: theirs
# Steps between probes: how the solver's likelihood of fresh target answers changes by a step on
# one question, beside its score. For worlds whose answers are completions. 0: never.
PROBE_EVERY = 10
PROBED = 12  # questions, at most
PROBE_TARGETS = 48  # problems

RIVALS = {
    "fixed generator": {"GENERATOR_RATE": 0.0},
    "random reward": {"WORTH": "chance"},
    "variance reward": {"WORTH": "variance"},
    "difficulty reward": {"WORTH": "difficulty", "LABELS": "majority"},
    "examples for documents": {"SOURCE": "examples", "WORTH": "difficulty", "LABELS": "majority"},
    "target problems only": {"DOCUMENTS": 0},
}

GENERATOR, SOLVER = 0, 1  # places in the population
NEAR = 64  # questions that were solved sometimes, the last ones, which prompts may go by


def main() -> None:
    job = read_job()
    torch.set_num_threads(job.threads)
    torch.use_deterministic_algorithms(True)
    with Journal(job) as journal, Questionbook(token_counter(job.base)) as book:
        run = Run(job, journal, book)
        while run.has_budget() and not journal.should_stop():
            run.step()
            if journal.steps % CHECKPOINT_EVERY == 0:
                run.save()
        run.deliver()


class Run:
    """A generator and a solver, and all that their steps change."""

    def __init__(self, job: Job, journal: Journal, book: Questionbook) -> None:
        self.job, self.journal, self.book = job, journal, book
        self.table = Table(
            job,
            journal,
            book,  # pyright: ignore[reportArgumentType]  # tasks are not read at this table
            members=2,
            archive=1,
            betas=BETAS,
            temperature=TEMPERATURE,
            max_tokens=MAX_TOKENS,
        )
        self.mirror = Mirror(job, temperature=TEMPERATURE, cap=WEIGHT_CAP)
        self.target = Target(
            journal.read_problems(job.target)[: LABELLED or None],
            TARGET_DOMAINS,
            fewest=FEWEST_TARGETS,
            most=MOST_TARGETS,
            remembered=REMEMBERED,
        )
        self.scoring = WORTH == "influence" and GENERATOR_RATE > 0 and DOCUMENTS > 0
        self.near: list[Question] = []
        self.known: set[str] = set()  # ids of all questions
        if job.checkpoint is not None:
            kept = self.table.restore(job.checkpoint)
            self.target.restore(kept["target"])
            self.known = set(kept["known"])
            self.near = [Question.from_json(row) for row in kept["near"]]

    def has_budget(self) -> bool:
        """Whether a step fits into what is left."""
        targets = max(MOST_TARGETS if self.scoring else 0, PRACTISED)
        wanted = targets * ATTEMPTS + DOCUMENTS * QUESTIONS * (1 + self.book.parts + ATTEMPTS)
        if self.journal.steps == 0 and self.journal.rollouts_left < wanted:
            raise ValueError(
                f"wanted a budget of one step, {wanted} rollouts, found "
                f"{self.journal.rollouts_left}; make DOCUMENTS or MOST_TARGETS smaller"
            )
        return self.journal.rollouts_left >= wanted

    def step(self) -> None:
        watch, number = Stopwatch(), self.journal.steps

        # S1. The solver at the target.
        wanted = max(self.target.count if self.scoring else 0, PRACTISED)
        problems = self.target.draw(wanted, self.dice("target"))
        target = pose_problems(
            self.table,
            SOLVER,
            problems,
            attempts=ATTEMPTS,
            soundings=SOUNDINGS,
            seed=self.seed("target attempts"),
        )
        self.target.note(problems, target)
        watch.lap("target")

        # S2. Questions.
        passages = self.passages(problems)
        asked = [passage for passage in passages for _ in range(QUESTIONS)]
        written, found = self.generate(asked)
        watch.lap("generate")

        # S3. The solver at the questions.
        questions = [one for one in found if isinstance(one, Question)]
        posed = pose_questions(
            self.table,
            SOLVER,
            questions,
            self.book,
            labels=LABELS,
            mid_eos=MID_EOS,
            max_tokens=MAX_TOKENS,
            attempts=ATTEMPTS,
            soundings=SOUNDINGS,
            seed=self.seed("attempts"),
        )
        watch.lap("solve")

        # S4. Influence, at the weights that made the attempts.
        adapter = self.table.population.adapter(SOLVER)
        self.mirror.show(adapter)
        trained = [one for one in [*posed, *target[:PRACTISED]] if one.sometimes]
        lengths = [len(text.logprobs) for one in [*posed, *target] for text in one.attempts]
        normaliser = fmean(lengths or [1]) * ATTEMPTS
        answers = [answer for n, one in enumerate(trained) for answer in one.answers(n)]
        diverse = [q for q, one in zip(questions, posed, strict=True) if one.sometimes]
        against, reliability = None, None
        if diverse and self.scoring:
            against, reliability = self.target.gradient(self.mirror, normaliser)
        measured = self.measure(answers, len(trained), against, normaliser, adapter)
        scores, aligned = dict[str, float](), None
        if measured is not None and against is not None:
            aligned = alignment(measured.gradient, against, self.moment(adapter))
            # Questions stand before the target problems that are practised.
            values = SCORES[SCORE](measured).tolist()[: len(diverse)]
            scores = {q.id: value for q, value in zip(diverse, values, strict=True)}
        probed = None
        if scores and against and PROBE_EVERY and number % PROBE_EVERY == 0:
            fresh = self.target.draw(PROBE_TARGETS, self.dice("probe"))
            probed = probe(
                self.mirror,
                [*scores.values()],
                answers,
                solutions(load_tokenizer(self.job.base), fresh, SOLVER),
                Step(
                    SOLVER,
                    adapter,
                    self.table.optimiser.state_dict(),
                    SOLVER_RATE,
                    (BETAS[0], BETAS[1]),
                    CLIP_NORM,
                    normaliser,
                ),
                number=PROBED,
            )
            probed["score_reliability"] = halved_reliability(
                self.mirror, posed, against, self.moment(adapter), SCORES[SCORE], normaliser
            )
        watch.lap("influence")

        # S5 and S6. Both learn, neither sees the other's step.
        refusal = self.refusal(reliability)
        rewards, lessons = self.teach(written, found, questions, posed, scores)
        if measured is not None:
            row_P = self.mirror.as_row(measured.gradient, adapter) / len(trained)
            self.table.population.gradients_G_P[SOLVER] += row_P
        taught, gradient_norms = self.table.learn(
            [] if refusal else lessons,
            [GENERATOR_RATE, SOLVER_RATE],
            gather={"generator": GATHERS},
            clip_norm=CLIP_NORM,
            clip_ratio=CLIP_RATIO,
        )
        self.near = [*self.near, *diverse][-NEAR:]
        watch.lap("train")

        self.journal.step(
            loss=taught.loss,
            lessons={"tokens": taught.tokens, "clipped": taught.clipped},
            tokens=self.journal.tokens,
            documents=self.book.documents,
            questions=count_reasons(found),
            generator_reward=fmean(rewards) if rewards else None,
            generator_refused=refusal,
            target=self.target.told(problems, target, reliability),
            alignment=aligned,
            trained=len(trained),
            probe=probed,
            gradient_norms=gradient_norms,
            seconds=watch.seconds,
            generator=manner(written, MAX_TOKENS),
            solver=manner([t for one in [*posed, *target] for t in one.attempts], MAX_TOKENS),
            **inquest(self.book.facts, passages, asked, found, questions, posed, scores, measured),
        )

    def passages(self, problems: Sequence[Problem]) -> list[Passage]:
        """S2: what questions are to be written about."""
        dice = self.dice("documents")
        if SOURCE == "examples":
            return self.book.take_examples(DOCUMENTS, dice, problems)
        return self.book.take(DOCUMENTS, dice, DOCUMENTS * self.journal.steps, self.near)

    def generate(self, asked: Sequence[Passage]) -> tuple[list[Text], list[Question | Reason]]:
        """S2: what the generator writes about each of these passages, and the questions, with the
        keys that it then gives them.
        """
        if not asked:
            return [], []
        written = self.table.write(
            [(GENERATOR, passage.prompt) for passage in asked],
            seed=self.seed("questions"),
            end=asked[0].end,
        )
        found = self.book.read(asked, [text.text for text in written])
        found = without_repeats(found, self.known)
        places = [n for n, one in enumerate(found) if isinstance(one, Question)]
        questions = [one for one in found if isinstance(one, Question)]
        keyed = answer_own(self.table, GENERATOR, self.book, questions)
        for place, one in zip(places, keyed, strict=True):
            found[place] = one
        return written, found

    def measure(
        self,
        answers: Sequence[Answer],
        count: int,
        against: dict[str, Tensor] | None,
        normaliser: float,
        adapter: dict[str, Tensor],
    ) -> Influence | None:
        """S4: what is known of each of `count` questions; None where there is none."""
        if not count:
            return None
        zeros_P = torch.zeros_like(self.table.population.factors_G_P[SOLVER])
        return influence(
            self.mirror.model,
            self.mirror.batches(answers, normaliser=normaliser),
            questions=count,
            target=against or self.mirror.by_name(zeros_P, adapter),
            moment=self.moment(adapter),
        )

    def moment(self, adapter: dict[str, Tensor]) -> SecondMoment:
        """The solver's, as AdamW has it before its next step."""
        return self.mirror.moment(
            self.table.optimiser.state_dict(), SOLVER, adapter, beta2=BETAS[1]
        )

    def refusal(self, reliability: float | None) -> str | None:
        """Why the generator does not learn in this step, if so."""
        if GENERATOR_RATE == 0:
            return "fixed"
        if self.journal.steps < WARM_UP:
            return "warm-up"
        if WORTH != "influence":
            return None
        return "no scores" if reliability is None else why_unreliable(reliability)

    def teach(
        self,
        written: Sequence[Text],
        found: Sequence[Question | Reason],
        questions: Sequence[Question],
        posed: Sequence[Posed],
        scores: dict[str, float],
    ) -> tuple[list[float], list[Lesson]]:
        """S5: the generator's rewards, and what it can learn from them."""
        dice = self.dice("worths")
        worths = {
            question.id: WORTHS[WORTH](one.grades, scores.get(question.id, 0.0), dice)
            for question, one in zip(questions, posed, strict=True)
        }
        rewards = taught_rewards(found, worths, size=QUESTIONS, margin=MARGIN)
        if not rewards:
            return [], []
        earned_N = torch.tensor([*rewards.values()], dtype=torch.float64)
        advantages = FORMS[ADVANTAGE](earned_N, torch.tensor([*rewards]) // QUESTIONS)
        return [*rewards.values()], [
            Lesson(written[place], ("generator", GENERATOR), advantage)
            for place, advantage in zip(rewards, advantages.tolist(), strict=True)
        ]

    def seed(self, purpose: str) -> int:
        return seed_of(self.job.seed, self.journal.steps, purpose)

    def dice(self, purpose: str) -> Any:
        return dice_of(self.job.seed, self.journal.steps, purpose)

    def save(self) -> None:
        """S7: write a checkpoint."""
        self.table.save(
            {
                "target": self.target.state(),
                "known": sorted(self.known),
                "near": [question.to_json() for question in self.near],
            }
        )

    def deliver(self) -> None:
        """Save both; the solver is the run's adapter."""
        self.table.population.save(GENERATOR, OUT / "generator")
        self.table.population.save(SOLVER, self.journal.adapter)
        self.journal.deliver()


if __name__ == "__main__":
    main()

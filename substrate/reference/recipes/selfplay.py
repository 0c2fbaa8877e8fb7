"""Self-play: one adapter that writes tasks and solves them, the single-agent rival of `populora`.

It is Absolute Zero (Zhao et al., arXiv 2505.03335) with LoRA, on the blocks of `populora`, so that
the two differ in the population alone: the same promptbook, rewards, updates and share of the
base's own tasks. Unlike Absolute Zero's, the attempts that give a task its solve rate also train.

`PUBLISHED` has Absolute Zero's own rules as values of the same constants.

Left out on purpose: replay of old tasks, several steps on one batch, a KL penalty.
"""

from typing import Any

import torch
from torch import Tensor

from training.baselines import centred, task_relative
from training.census import census
from training.exam import exam
from training.journal import Job, Journal, read_job
from training.match import Order
from training.models import load_tokenizer
from training.promptbook import Promptbook
from training.seeds import dice_of, seed_of
from training.stopwatch import Stopwatch
from training.table import Table
from training.teaching import Taste, lessons, students_marks, teachers_marks

# The same as in `populora`, where their sources stand.
PROMPTS = 4
PROPOSALS = 4
PRIOR_TASKS = 2
ATTEMPTS = 8
TYPE_WEIGHTS = [["deduction", 1.0]]
TEMPERATURE = 1.0
MAX_TOKENS = 160
TASTE = 0.5
INVALID = 0.0
GAP = 0.5
STUDENT_RATE = 3e-3  # at which the one adapter learns from both roles
TEACHER_GATHERS = 16
STUDENT_GATHERS = 32
BETAS = [0.9, 0.95]
CLIP_NORM = 1.0
CLIP_RATIO = 0.2
ARCHIVE = 16384
CHECKPOINT_EVERY = 10
MEASURE_EVERY = 50
EXAM = 32
EXAM_ATTEMPTS = 8

# Attempts are compared with those at the same task (True), or with all of their type and role, over
# their deviation: Absolute Zero's task-relative REINFORCE++.
GROUPED = True

PUBLISHED = {
    "PRIOR_TASKS": 0,
    "TASTE": 0.0,
    "INVALID": -1.0,
    "GAP": 0.0,
    "GROUPED": False,
    "TEACHER_GATHERS": 1,
    "STUDENT_GATHERS": 1,
}

PLAYER = 0  # place of the one member in its population


def main() -> None:
    job = read_job()
    torch.set_num_threads(job.threads)
    torch.use_deterministic_algorithms(True)
    reserved = load_tokenizer(job.base).all_special_tokens
    with Journal(job) as journal, Promptbook(reserved=reserved) as book:
        table = Table(
            job,
            journal,
            book,
            members=1,
            archive=ARCHIVE,
            betas=BETAS,
            temperature=TEMPERATURE,
            max_tokens=MAX_TOKENS,
        )
        if job.checkpoint is not None:
            table.restore(job.checkpoint)
        while has_budget(journal) and not journal.should_stop():
            step(job, journal, table)
            if journal.steps % CHECKPOINT_EVERY == 0:
                table.save({})
        table.population.save(PLAYER, journal.adapter)
        journal.deliver()


def has_budget(journal: Journal) -> bool:
    """Whether a step fits into what is left."""
    wanted = (PROMPTS * PROPOSALS + PRIOR_TASKS) * (1 + ATTEMPTS)
    if journal.steps == 0 and journal.rollouts_left < wanted:
        raise ValueError(
            f"wanted a budget of one step, {wanted} rollouts, found {journal.rollouts_left}; "
            "make PROMPTS smaller"
        )
    return journal.rollouts_left >= wanted


def step(job: Job, journal: Journal, table: Table) -> None:
    """The player writes tasks, attempts them, and learns from both."""
    watch, number, base = Stopwatch(), journal.steps, table.population.base
    proposals = table.propose(
        orders(job, number, table), seed=seed_of(job.seed, number, "proposal")
    )
    watch.lap("propose")
    played = table.play(
        proposals, {0: PLAYER}, attempts=ATTEMPTS, seed=seed_of(job.seed, number, "solving")
    )
    watch.lap("solve")
    taste = Taste(exponent=TASTE, invalid=INVALID, gap=GAP)
    marks = teachers_marks(proposals, played, taste, base=base)
    marks += students_marks(played, by_task=GROUPED)
    taught, gradient_norms = table.learn(
        lessons(marks, centred if GROUPED else relative_to_tasks),
        [STUDENT_RATE],
        gather={"teacher": TEACHER_GATHERS, "student": STUDENT_GATHERS},
        clip_norm=CLIP_NORM,
        clip_ratio=CLIP_RATIO,
    )
    watch.lap("train")
    measured = {}
    if MEASURE_EVERY > 0 and (number + 1) % MEASURE_EVERY == 0:
        measured = measure(job, journal, table)
    watch.lap("measure")
    journal.step(
        loss=taught.loss,
        lessons={"tokens": taught.tokens, "clipped": taught.clipped},
        tokens=journal.tokens,
        gradient_norms=gradient_norms,
        seconds=watch.seconds,
        **measured,
        **census(proposals, played, marks, table.archive, base=base),
    )


def measure(job: Job, journal: Journal, table: Table) -> dict[str, Any]:
    """An exam of the player, outside the budget; at the first one the base sits it too."""
    number, problems = journal.steps, journal.read_problems(job.target)
    problems = dice_of(job.seed, 0, "exam").sample(problems, min(EXAM, len(problems)))
    seed = seed_of(job.seed, number, "exam")
    return {
        name: exam(table, [place], problems, attempts=EXAM_ATTEMPTS, seed=seed)
        for name, place in (("exam", PLAYER), ("exam_of_base", table.population.base))
        if name == "exam" or number + 1 == MEASURE_EVERY
    }


def relative_to_tasks(rewards_N: Tensor, groups_N: Tensor, batches_N: Tensor) -> Tensor:
    """Absolute Zero's advantages: a group is a role and type, and is scaled alone."""
    return task_relative(rewards_N, groups_N)


def orders(job: Job, number: int, table: Table) -> list[Order]:
    """What the player, and the base in its stead, is asked to write."""
    dice = dice_of(job.seed, number, "orders")
    types, weights = zip(*TYPE_WEIGHTS, strict=True)
    wanted = []
    base = table.population.base
    for author, count in [(PLAYER, PROPOSALS)] * PROMPTS + [(base, 1)] * PRIOR_TASKS:
        (type,) = dice.choices(types, weights)
        prompt = table.book.proposal_prompt(type, dice, table.archive)
        wanted += [Order(0, author, type, prompt)] * count
    return wanted


if __name__ == "__main__":
    main()

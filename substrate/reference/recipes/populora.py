"""PopuLoRA: teachers and students, LoRA adapters of one base, in an arms race that evolves them.

Each step has five phases (PopuLoRA, arXiv 2605.16727, as secondary sources give it):

1. matchmaking: each teacher gets the student that it is most evenly matched with (TrueSkill);
2. proposal: it writes tasks; the promptbook, which runs programs, says which are valid;
3. solving: its student attempts each task ATTEMPTS times. These attempts are the student's own
   training groups and the teacher's solve rate at once;
4. update: rewards, advantages, one policy-gradient step of every member, and of the ratings;
5. evolution, every EVOLVE_EVERY steps: the weakest of each role are replaced by mutations and
   crossovers of the others.

What the paper's sources leave open is a constant below, with its source or the reason for its
value. `PUBLISHED` has the published rules as values of the same constants.

Delivered is the student that solves most of YARDSTICK problems of the target set, greedily; these
attempts are part of the budget. All members are in `out/population/`. A run that is stopped and
resumed from its checkpoint gives the same bytes as one that was not.

Every MEASURE_EVERY steps all students meet all teachers, and take an exam. These attempts are not
part of the budget: nothing that happens in the run depends on them.

Left out on purpose: a reference model and its KL penalty, several steps on one batch, replay of old
tasks by students.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

import torch

from training import world
from training.baselines import centred, reinforce_plus_baseline
from training.census import census
from training.codetasks import Task
from training.crossplay import cross_play
from training.diversity import diversity
from training.evolution import Evolution, Role, evolve, rated
from training.exam import exam
from training.journal import OUT, Job, Journal, read_job
from training.match import Order, Played, Proposal
from training.models import load_tokenizer
from training.novelty import novelty
from training.operators import SETS
from training.promptbook import Promptbook
from training.ratings import after_match, draw_matches, lower_bound, win_probability, winner
from training.seeds import dice_of, seed_of
from training.stopwatch import Stopwatch
from training.table import Table
from training.teaching import Taste, lessons, students_marks, teachers_marks

# The population. The paper's main run has 4 + 4, its ablations 1 + 1 and 8 + 8.
TEACHERS = 4
STUDENTS = 4

# A step.
PROMPTS = 4  # of each teacher; Absolute Zero has 64 of each type, for models that cost more
PROPOSALS = 4  # for each prompt, compared with each other; Absolute Zero has 1 and no group
ATTEMPTS = 8  # of each task: Absolute Zero's
TYPE_WEIGHTS = [["deduction", 1.0]]  # what pocket is measured on; both papers: all three alike
# Prompts that the base answers in a teacher's stead, whose tasks keep students from forgetting.
PRIOR_TASKS = 2  # published: 0
TEMPERATURE = 1.0  # both papers'
MAX_TOKENS = 160  # of a completion; one that is cut off is judged as it is

# Rewards, see `training/teaching.py`.
TASTE = 0.5  # of teachers: for tasks that are solved a third of the time. Published: 0, the hardest
# What an invalid proposal is worth at most. Published: -1, at which easy tasks are safest.
INVALID = 0.0
GAP = 0.5  # and how far below its author's worst task, in spreads of its tasks. Published: 0
# Solve rates are those of the teacher's own attempts, which train nobody, or of its student's.
SELF_GRADED = False

# Updates. The sources name no rate; Absolute Zero's 1e-6 is that of a whole model.
STUDENT_RATE = 3e-3  # the rate of `rlvr` on the same small model
TEACHER_RATE = 1e-3  # teachers have less to learn from; 0: they stay what the base is
# Texts with an advantage that a member gathers, from step to step, before it learns from all of
# them: the fewer tasks are at its frontier, the less often it does. Published: at every step.
TEACHER_GATHERS = 16
STUDENT_GATHERS = 32
BETAS = [0.9, 0.95]  # of Adam, as in `rlvr`
# Advantages are rewards less their group's mean; as published, scaled to deviation 1 in each batch,
# which makes of a batch of small differences as large a step as of any other.
WHITEN = False
CLIP_NORM = 1.0  # of each member's gradient: Absolute Zero's
CLIP_RATIO = 0.2  # of probabilities, new to old: Absolute Zero's

# Matchmaking: weights (p (1 - p)) ** SHARPNESS of a student's chance p to win. 0: random.
SHARPNESS = 1.0

# Evolution. The paper's interval, by a reading of it, is 10 steps, each with an update of every
# member; here a student learns about every fifth step. 0: never.
EVOLVE_EVERY = 50
CULLED = 0.25  # share of a role that is replaced at once
CROSSOVER_SHARE = 0.5  # of children that have two parents; 0: mutation only; 1: crossover only
OPERATORS = "default"  # or "published", or "controls": see training/operators.py
FRESH_RATINGS = False  # newcomers start at the prior (published), or inherit their parents' rating
LONE = False  # a role's only member is replaced by its own mutation. Published: True
GRACE = 1  # evolution events that a newcomer is spared at. Published: 0

YARDSTICK = 64  # problems of the target set that choose the student to deliver
ARCHIVE = 16384  # tasks that are kept: Absolute Zero's cap
CHECKPOINT_EVERY = 10  # steps
DIVERSITY_EVERY = 10  # steps, of its metrics and of novelty

# Measurements, outside the budget: a tenth of what it has, at these values.
MEASURE_EVERY = 50  # steps; 0: never
CROSS_TASKS = 3  # of each teacher, which every student attempts
CROSS_ATTEMPTS = 4
EXAM = 32  # problems of the target set
EXAM_ATTEMPTS = 8  # of which pass@k is told, up to this k

PUBLISHED = {
    "PRIOR_TASKS": 0,
    "TASTE": 0.0,
    "INVALID": -1.0,
    "GAP": 0.0,
    "WHITEN": True,
    "TEACHER_GATHERS": 1,
    "STUDENT_GATHERS": 1,
    "OPERATORS": "published",
    "EVOLVE_EVERY": 10,
    "FRESH_RATINGS": True,
    "LONE": True,
    "GRACE": 0,
}


def main() -> None:
    job = read_job()
    torch.set_num_threads(job.threads)
    torch.use_deterministic_algorithms(True)
    reserved = load_tokenizer(job.base).all_special_tokens
    with Journal(job) as journal, Promptbook(reserved=reserved) as book:
        run = Run(job, journal, book)
        while run.has_budget() and not journal.should_stop():
            run.step()
            if journal.steps % CHECKPOINT_EVERY == 0:
                run.save()
        run.deliver()


class Run:
    """A population at play, and all that its steps change."""

    def __init__(self, job: Job, journal: Journal, book: Promptbook) -> None:
        self.job, self.journal = job, journal
        self.table = Table(
            job,
            journal,
            book,
            members=TEACHERS + STUDENTS,
            archive=ARCHIVE,
            betas=BETAS,
            temperature=TEMPERATURE,
            max_tokens=MAX_TOKENS,
        )
        self.teachers = Role("teacher", list(range(TEACHERS)))
        self.students = Role("student", list(range(TEACHERS, TEACHERS + STUDENTS)))
        self.base = self.table.population.base  # the base model's own place
        self.hall: list[Task] = []  # of fame: tasks of earlier cross-plays
        if job.checkpoint is not None:
            kept = self.table.restore(job.checkpoint)
            self.teachers, self.students = Role.of(kept["teachers"]), Role.of(kept["students"])
            self.hall = [Task.from_json(task) for task in kept["hall"]]

    def has_budget(self) -> bool:
        """Whether a step fits into what is left, with the yardstick behind it."""
        tasks = TEACHERS * (PROMPTS * PROPOSALS + PRIOR_TASKS)
        step = tasks * (1 + ATTEMPTS * (2 if SELF_GRADED else 1))
        wanted = step + STUDENTS * YARDSTICK
        if self.journal.steps == 0 and self.journal.rollouts_left < wanted:
            raise ValueError(
                f"wanted a budget of one step and the yardstick, {wanted} rollouts, found "
                f"{self.journal.rollouts_left}; make the population or PROMPTS smaller"
            )
        return self.journal.rollouts_left >= wanted

    def step(self) -> None:
        watch, number = Stopwatch(), self.journal.steps

        # 1. Matchmaking: a student for each teacher.
        dice = dice_of(self.job.seed, number, "matchmaking")
        pairs = draw_matches(self.teachers.ratings, self.students.ratings, dice, power=SHARPNESS)

        # 2. Proposal.
        proposals = self.table.propose(
            self.orders(), seed=seed_of(self.job.seed, number, "proposal")
        )
        watch.lap("propose")

        # 3. Solving, by the students and, where teachers grade themselves, by them too.
        players = {match: self.students.places[student] for match, student in enumerate(pairs)}
        played = graded = self.table.play(
            proposals, players, attempts=ATTEMPTS, seed=seed_of(self.job.seed, number, "solving")
        )
        if SELF_GRADED:
            graded = self.table.play(
                proposals,
                dict(enumerate(self.teachers.places)),
                attempts=ATTEMPTS,
                seed=seed_of(self.job.seed, number, "grading"),
            )
        watch.lap("solve")

        # 4. Update: of the members, then of their ratings.
        taste = Taste(exponent=TASTE, invalid=INVALID, gap=GAP)
        marks = teachers_marks(proposals, graded, taste, base=self.base)
        marks += students_marks(played)
        taught, gradient_norms = self.table.learn(
            lessons(marks, reinforce_plus_baseline if WHITEN else centred),
            [TEACHER_RATE] * TEACHERS + [STUDENT_RATE] * STUDENTS,
            gather={"teacher": TEACHER_GATHERS, "student": STUDENT_GATHERS},
            clip_norm=CLIP_NORM,
            clip_ratio=CLIP_RATIO,
        )
        matches = self.rate(pairs, played)
        watch.lap("train")

        measured: dict[str, Any] = {}
        if MEASURE_EVERY > 0 and (number + 1) % MEASURE_EVERY == 0:
            measured = self.measure(proposals)
        watch.lap("measure")

        # 5. Evolution, teachers first.
        births: list[dict[str, Any]] = []
        evolving = EVOLVE_EVERY > 0 and (number + 1) % EVOLVE_EVERY == 0
        if evolving:
            births = self.evolve(self.teachers) + self.evolve(self.students)
        watch.lap("evolve")

        self.journal.step(
            loss=taught.loss,
            lessons={"tokens": taught.tokens, "clipped": taught.clipped},
            tokens=self.journal.tokens,
            matches=matches,
            ratings={f"{role.name}s": rated(role.ratings) for role in self.roles},
            births=births,
            diversity=self.diversity() if number % DIVERSITY_EVERY == 0 else None,
            novelty=self.novelty(proposals) if number % DIVERSITY_EVERY == 0 else None,
            gradient_norms=gradient_norms,
            seconds=watch.seconds,
            **measured,
            **census(proposals, played, marks, self.table.archive, base=self.base),
        )

    @property
    def roles(self) -> tuple[Role, Role]:
        return self.teachers, self.students

    def orders(self) -> list[Order]:
        """What each teacher, and the base in its stead, is asked to write."""
        dice = dice_of(self.job.seed, self.journal.steps, "orders")
        types, weights = zip(*TYPE_WEIGHTS, strict=True)
        orders = []
        for match, teacher in enumerate(self.teachers.places):
            for author, count in [(teacher, PROPOSALS)] * PROMPTS + [(self.base, 1)] * PRIOR_TASKS:
                (type,) = dice.choices(types, weights)
                prompt = self.table.book.proposal_prompt(type, dice, self.table.archive)
                orders += [Order(match, author, type, prompt)] * count
        return orders

    def rate(self, pairs: Sequence[int], played: Sequence[Played]) -> list[dict[str, Any]]:
        """Each match moves two ratings, in the order of the teachers; a teacher's own tasks count.

        Returns what the matches were like, as JSON.
        """
        matches = []
        for teacher, student in enumerate(pairs):
            place = self.teachers.places[teacher]
            rates = [task.solve_rate for task in played if task.proposal.order.author == place]
            found = fmean(rates) if rates else None
            before = self.teachers.ratings[teacher], self.students.ratings[student]
            # A reading of the paper: ratings are forecasts of the solve rate. Against 0.5 instead,
            # the other reading, pairs drift apart until they no longer meet.
            expected = win_probability(before[1], before[0])
            after = after_match(*before, found, expected)
            self.teachers.ratings[teacher], self.students.ratings[student] = after
            matches.append(
                {
                    "teacher": teacher,
                    "student": student,
                    "expected": expected,
                    "solve_rate": found,
                    "tasks": len(rates),
                    "winner": winner(found, expected),
                    "before": rated(before),  # the teacher's rating, then the student's
                    "after": rated(after),
                }
            )
        return matches

    def evolve(self, role: Role) -> list[dict[str, Any]]:
        """Replace the weakest of a role. The births, as JSON."""
        done = self.journal.steps + 1
        return evolve(
            role,
            Evolution(SETS[OPERATORS], CULLED, CROSSOVER_SHARE, GRACE, FRESH_RATINGS, LONE),
            event=done // EVOLVE_EVERY,
            step=done,
            dice=dice_of(self.job.seed, self.journal.steps, f"evolution of {role.name}s"),
            adapter=self.table.population.adapter,
            replace=self.table.replace,
        )

    def diversity(self) -> dict[str, Any]:
        """How different the members of each role are."""
        return {
            f"{role.name}s": asdict(
                diversity([self.table.population.adapter(place) for place in role.places])
            )
            for role in self.roles
        }

    def novelty(self, proposals: Sequence[Proposal]) -> float | None:
        """How far this step's tasks of the teachers are from earlier ones."""
        own = [p.task for p in proposals if p.task and p.order.author != self.base]
        return novelty(
            own, self.table.archive, dice_of(self.job.seed, self.journal.steps, "novelty")
        )

    def measure(self, proposals: Sequence[Proposal]) -> dict[str, Any]:
        """Cross-play and an exam of the students; at the first one the base sits it too."""
        number, students = self.journal.steps, self.students.places
        crossed = cross_play(
            self.table,
            proposals,
            self.teachers.places,
            students,
            self.hall,
            tasks=CROSS_TASKS,
            attempts=CROSS_ATTEMPTS,
            seed=seed_of(self.job.seed, number, "cross-play"),
        )
        seed, problems = seed_of(self.job.seed, number, "exam"), self.problems("exam", EXAM)
        found = {
            name: exam(self.table, places, problems, attempts=EXAM_ATTEMPTS, seed=seed)
            for name, places in (("exam", students), ("exam_of_base", [self.base]))
            if name == "exam" or number + 1 == MEASURE_EVERY
        }
        return {"cross_play": crossed, **found}

    def save(self) -> None:
        """Write a checkpoint."""
        roles = {f"{role.name}s": asdict(role) for role in self.roles}
        self.table.save({**roles, "hall": [task.to_json() for task in self.hall]})

    def problems(self, purpose: str, count: int) -> list[dict[str, Any]]:
        """So many problems of the target set, the same ones all along."""
        found = self.journal.read_problems(self.job.target)
        return dice_of(self.job.seed, 0, purpose).sample(found, min(count, len(found)))

    def deliver(self) -> None:
        """Save all members, and as the run's adapter the student that is best on the yardstick."""
        problems = self.problems("yardstick", YARDSTICK)
        wanted = [(place, p["prompt"]) for place in self.students.places for p in problems]
        texts = self.table.write(wanted, seed=0, greedy=True)
        solved = [0.0] * STUDENTS
        for number, text in enumerate(texts):
            student, problem = divmod(number, len(problems))
            solved[student] += world.reward(problems[problem], text.text)
        bounds = [lower_bound(rating) for rating in self.students.ratings]
        best = max(range(STUDENTS), key=lambda student: (solved[student], bounds[student]))
        for role in self.roles:
            for number, place in enumerate(role.places):
                self.table.population.save(place, OUT / "population" / f"{role.name}-{number}")
        self.table.population.save(self.students.places[best], self.journal.adapter)
        chosen = {"solved": solved, "of": len(problems), "delivered": best}
        (OUT / "population" / "yardstick.json").write_text(json.dumps(chosen), encoding="utf-8")
        self.journal.deliver()


if __name__ == "__main__":
    main()

"""The table at which members play: they write, are read and judged, and learn; it counts and keeps.

It holds what all recipes of this kind share: a population with its optimiser, the tokenizer, the
promptbook that reads and judges, and the archive of tasks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from training import checkpoint
from training.archive import Archive
from training.codetasks import Task
from training.journal import Job, Journal
from training.lessons import Lesson, Taught, add_gradients
from training.match import DUPLICATE, VALID, Order, Played, Proposal, Text
from training.member_adam import MemberAdam
from training.models import load_base, load_tokenizer
from training.population import Population, Row
from training.promptbook import Promptbook
from training.sampling import sample
from training.seeds import seed_of


class Table:
    def __init__(
        self,
        job: Job,
        journal: Journal,
        book: Promptbook,
        *,
        members: int,
        archive: int,
        betas: Sequence[float],
        temperature: float,
        max_tokens: int,
    ) -> None:
        """`archive` is how many tasks are kept, `betas` are Adam's. Raises ValueError for a
        tokenizer without one end-of-sequence token, and what `Population` raises.
        """
        self.book = book
        self.journal = journal
        self.population = Population(
            load_base(job),
            count=members,
            rank=job.rank,
            alpha=job.alpha,
            target_modules=job.target_modules,
            seeds=[seed_of(job.seed, 0, f"member {number}") for number in range(members)],
        )
        self.optimiser = MemberAdam(self.population, betas=(betas[0], betas[1]))
        self.archive = Archive(archive)
        self._gathered: dict[tuple[str, int], list[Lesson]] = {}
        self._tokenizer = load_tokenizer(job.base)
        end = self._tokenizer.eos_token_id
        if not isinstance(end, int):
            raise ValueError(f"wanted a tokenizer with one end-of-sequence token, found {end}")
        self._end = end
        self._temperature = temperature
        self._max_tokens = max_tokens

    def write(
        self,
        wanted: Sequence[tuple[int, str]],
        *,
        seed: int,
        greedy: bool = False,
        end: str | None = None,
        counted: bool = True,
    ) -> list[Text]:
        """A completion for each (place in the population, prompt), all in one batch. `end` is a
        token to end at instead of the end of a sequence; raises ValueError unless it is one. Those
        that are not counted are outside the budget: nobody may learn from them, or be chosen by
        them.
        """
        places = [place for place, _ in wanted]
        read = {prompt: self._tokens(prompt) for prompt in {prompt for _, prompt in wanted}}
        prompts = [read[prompt] for _, prompt in wanted]
        completions = sample(
            self.population.pack(),
            prompts,
            end=self._end if end is None else self._token(end),
            max_tokens=self._max_tokens,
            temperature=0.0 if greedy else self._temperature,
            generator=torch.Generator().manual_seed(seed),
            adapter_of=places,
        )
        if counted:
            tokens = sum(len(completion.tokens) for completion in completions)
            self.journal.count(rollouts=len(wanted), tokens=tokens)
        texts = self._tokenizer.batch_decode(
            [completion.tokens for completion in completions], skip_special_tokens=True
        )
        return [
            Text(Row(place, prompt, completion.tokens), completion.logprobs, text)
            for place, prompt, completion, text in zip(
                places, prompts, completions, texts, strict=True
            )
        ]

    def propose(self, orders: Sequence[Order], *, seed: int) -> list[Proposal]:
        """The proposals that were ordered. Those that are new and valid go into the archive."""
        texts = self.write([(order.author, order.prompt) for order in orders], seed=seed)
        found: dict[int, Task | str] = {}
        for type in sorted({order.type for order in orders}):
            places = [n for n, order in enumerate(orders) if order.type == type]
            prompts, completions = (
                [orders[n].prompt for n in places],
                [texts[n].text for n in places],
            )
            read = self.book.read_proposals(type, prompts, completions, seed)
            found.update(zip(places, read, strict=True))
        proposals = []
        for n, (order, text) in enumerate(zip(orders, texts, strict=True)):
            task = found[n]
            if isinstance(task, str):
                proposals.append(Proposal(order, text, None, task))
            else:
                reason = VALID if self.archive.add(task, order.author) else DUPLICATE
                proposals.append(Proposal(order, text, task, reason))
        return proposals

    def play(
        self,
        proposals: Sequence[Proposal],
        players: Mapping[int, int],
        *,
        attempts: int,
        seed: int,
    ) -> list[Played]:
        """Each task that counts, attempted so often by its match's player (a place, by match)."""
        tasks = [(p, p.task) for p in proposals if p.task is not None and p.reason == VALID]
        each = [(players[p.order.match], task) for p, task in tasks for _ in range(attempts)]
        texts = self.write([(place, task.prompt) for place, task in each], seed=seed)
        grades = self.book.judge([task for _, task in each], [text.text for text in texts])
        played = []
        for n, (proposal, task) in enumerate(tasks):
            its = slice(n * attempts, (n + 1) * attempts)
            played.append(Played(proposal, task, texts[its], grades[its]))
            self.archive.record(task, attempts=attempts, solves=played[-1].grades.count("right"))
        return played

    def learn(
        self,
        lessons: Sequence[Lesson],
        rates: Sequence[float],
        *,
        gather: Mapping[str, int],
        clip_norm: float,
        clip_ratio: float,
    ) -> tuple[Taught, list[float]]:
        """Lessons are gathered until a member has, in one role, as many with an advantage as
        `gather` says for that role; then it learns from all of them at once, at its rate. Until
        then it does not change, so that they stay its own policy's.

        Returns what was taught, and the norm of each member's gradient before it was clipped: 0 for
        one that did not learn.
        """
        for lesson in lessons:
            self._gathered.setdefault(lesson.batch, []).append(lesson)
        due = [
            batch
            for batch, some in self._gathered.items()
            if sum(lesson.advantage != 0 for lesson in some) >= gather[batch[0]]
        ]
        lessons = [lesson for batch in due for lesson in self._gathered.pop(batch)]
        taught = add_gradients(
            self.population, lessons, clip_ratio=clip_ratio, temperature=self._temperature
        )
        return taught, self.optimiser.step(rates, clip_norm=clip_norm)

    def replace(self, place: int, adapter: Mapping[str, torch.Tensor]) -> None:
        """Another member in this place: moments and lessons belonged to the one that was there."""
        self.population.replace(place, adapter)
        self.optimiser.reset(place)
        for batch in [batch for batch in self._gathered if batch[1] == place]:
            del self._gathered[batch]

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint; `state` is what the recipe itself has to keep, as JSON."""
        tensors = {
            f"member {place}/{name}": tensor
            for place in range(self.population.count)
            for name, tensor in self.population.adapter(place).items()
        }
        moments = self.optimiser.state_dict()
        tensors |= {f"optimiser/{name}": tensor for name, tensor in moments.items()}
        gathered = [asdict(lesson) for some in self._gathered.values() for lesson in some]
        archive = self.archive.to_json()
        checkpoint.save(
            self.journal, tensors, {"recipe": state, "archive": archive, "lessons": gathered}
        )

    def restore(self, folder: Path) -> dict[str, Any]:
        """Go on from a checkpoint. What the recipe kept in it."""
        tensors, state = checkpoint.load(self.journal, folder)
        parts: dict[str, dict[str, torch.Tensor]] = {}
        for key, tensor in tensors.items():
            part, _, name = key.partition("/")
            parts.setdefault(part, {})[name] = tensor
        for place in range(self.population.count):
            self.population.replace(place, parts[f"member {place}"])
        self.optimiser.load_state_dict(parts.get("optimiser", {}))  # none before the first update
        self.archive = Archive.from_json(state["archive"])
        for kept in state["lessons"]:
            lesson = Lesson.of(kept)
            self._gathered.setdefault(lesson.batch, []).append(lesson)
        return state["recipe"]

    def _token(self, text: str) -> int:
        found = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(found) != 1:
            raise ValueError(f"wanted one token to end at, found {len(found)} in {text!r}")
        return found[0]  # pyright: ignore[reportReturnType]

    def _tokens(self, prompt: str) -> list[int]:
        """A prompt's tokens: those of a user's message, where the tokenizer knows chats."""
        if self._tokenizer.chat_template is None:
            return self._tokenizer(prompt)["input_ids"]  # pyright: ignore[reportReturnType]
        chat = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        return self._tokenizer(chat, add_special_tokens=False)["input_ids"]  # pyright: ignore

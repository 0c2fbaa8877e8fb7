"""Evolution: the weakest of a role make room for children of the others."""

import json
import random
from dataclasses import asdict, replace

import pytest
import torch

from training.evolution import Evolution, Role, evolve, rated
from training.operators import SETS
from training.ratings import Rating

COPIES = Evolution(
    SETS["controls"],
    culled=0.25,
    crossover_share=0.0,
    grace=1,
    fresh_ratings=False,
    lone=True,
)


class Members:
    """Adapters whose one value is their place, and what replaced them."""

    def __init__(self) -> None:
        self.children: dict[int, float] = {}

    def adapter(self, place: int) -> dict[str, torch.Tensor]:
        factors = {"A": torch.full((1, 2), float(place)), "B": torch.ones(2, 1)}
        return {f"base_model.model.q_proj.lora_{n}.weight": t for n, t in factors.items()}

    def replace(self, place: int, child: dict[str, torch.Tensor]) -> None:
        self.children[place] = float(child["base_model.model.q_proj.lora_A.weight"][0, 0])


def run(role: Role, how: Evolution, *, event: int = 1, step: int = 10) -> tuple[Members, list]:
    members = Members()
    births = evolve(
        role,
        how,
        event=event,
        step=step,
        dice=random.Random(1),
        adapter=members.adapter,
        replace=members.replace,
    )
    return members, births


def test_the_member_with_the_lowest_bound_becomes_a_copy_of_another() -> None:
    # Bounds mean - 3 deviations: 22, 4, 17, 21.
    ratings = [Rating(25, 1), Rating(25, 7), Rating(20, 1), Rating(30, 3)]
    role = Role("student", [4, 5, 6, 7], list(ratings))
    members, (birth,) = run(role, COPIES)
    (parent,) = birth["parents"]
    assert parent in (0, 2, 3)
    assert members.children == {5: 4.0 + parent}
    assert (birth["role"], birth["member"], birth["operator"]) == ("student", 1, "copy_parent")
    # It replaced a founder of 10 steps, whose bound was 13 below the next, 17.
    assert (birth["replaced"], birth["died_after"], birth["below"]) == ("founder", 10, 13)
    # Its parent's mean and deviation, or a quarter of a fresh deviation where that is wider.
    deviation = max(25 / 12, ratings[parent].deviation)
    assert role.ratings[1] == Rating(ratings[parent].mean, deviation)
    assert [r for n, r in enumerate(role.ratings) if n != 1] == [ratings[n] for n in (0, 2, 3)]
    assert (role.born, role.born_at) == ([0, 1, 0, 0], [0, 10, 0, 0])
    assert role.born_by == ["founder", "copy_parent", "founder", "founder"]
    # The next one makes room at the event after, once it is spared no more.
    role.ratings[1] = Rating(0, 1)
    _, (birth,) = run(role, COPIES, event=3, step=25)
    assert (birth["replaced"], birth["died_after"], birth["below"]) == ("copy_parent", 15, 20)


def test_a_newcomer_is_spared_at_the_next_event_and_not_at_the_one_after() -> None:
    role = Role("teacher", [0, 1], [Rating(30, 1), Rating(5, 8)], born=[0, 1], born_at=[0, 10])
    _, (birth,) = run(role, COPIES, event=2, step=20)
    assert birth["member"] == 0
    role = Role("teacher", [0, 1], [Rating(30, 1), Rating(5, 8)], born=[0, 1], born_at=[0, 10])
    _, (birth,) = run(role, COPIES, event=3, step=30)
    assert (birth["member"], birth["died_after"]) == (1, 20)


def test_as_published_a_newcomer_starts_with_the_prior() -> None:
    role = Role("student", [0, 1], [Rating(30, 1), Rating(5, 8)])
    fresh = replace(COPIES, grace=0, fresh_ratings=True)
    run(role, fresh)
    assert role.ratings[1] == Rating(25, 25 / 3)


def test_a_lone_member_is_replaced_by_its_own_mutation() -> None:
    role = Role("student", [3])
    members, (birth,) = run(role, COPIES)
    assert birth["parents"] == [0]
    assert members.children == {3: 3.0}


def test_a_lone_member_may_be_left_alone() -> None:
    role = Role("student", [3])
    members, births = run(role, replace(COPIES, lone=False))
    assert (members.children, births) == ({}, [])


def test_a_birth_says_how_the_child_lies_to_its_parents() -> None:
    """Updates are a column of ones times their place twice: of norm 2 * place, all in one line."""
    both = replace(COPIES, crossover_share=1.0)
    ratings = [Rating(10, 1), Rating(30, 1), Rating(20, 1)]
    _, (birth,) = run(Role("student", [1, 5, 3], ratings), both)
    assert birth["parents"] == [2, 1]  # the fitter one second
    assert birth["parents_norms"] == pytest.approx([6, 10])
    assert birth["norm"] == pytest.approx(8)
    assert birth["cosines"] == pytest.approx([1, 1])


def test_nobody_is_replaced_while_all_are_in_grace() -> None:
    role = Role("teacher", [0, 1], born=[1, 1], born_at=[10, 10])
    assert run(role, COPIES, event=2, step=20)[1] == []
    assert run(role, COPIES, event=3, step=30)[1] != []


def test_two_parents_are_those_of_before_the_event() -> None:
    both = replace(COPIES, culled=0.5, crossover_share=1.0, fresh_ratings=True)
    ratings = [Rating(10, 1), Rating(20, 1), Rating(30, 1), Rating(40, 1)]
    members, births = run(Role("student", [0, 1, 2, 3], ratings), both)
    assert [birth["parents"] for birth in births] == [[2, 3], [2, 3]]
    # The mean of the updates 2 and 3, whose B is 1: however it is factored, it is 2.5.
    assert len(members.children) == 2
    assert set(members.children) == {0, 1}
    for birth in births:
        assert birth["parents_norms"] == pytest.approx([4, 6])
        assert birth["norm"] == pytest.approx(5)


def test_a_role_survives_a_checkpoint() -> None:
    ratings = [Rating(26.5, 3), Rating()]
    role = Role("student", [1, 2], ratings, [0, 2], [0, 20], ["founder", "dare"])
    assert Role.of(json.loads(json.dumps(asdict(role)))) == role
    assert rated(role.ratings) == [[26.5, 3], [25.0, pytest.approx(25 / 3)]]

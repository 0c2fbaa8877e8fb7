"""Arms: truths of seven edits with known effects, by domain, on dev and on external.

Three domains of 200 problems each on dev and as many on external, of which the unmodified recipe
solves 45 %. A trial strays by its seed (the same shift on both sets) and by the problems: together
by one sigma, 0.025 on either set, the unit in which effects are given.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from policies.policy import Axis, ChoiceKnob, Overrides, SearchPolicy
from tests.simulation.campaign import Scores, Truth

FILE = "recipes/arms.py"
DOMAINS = ("equations", "lists", "strings")
BASE, PROBLEMS = 0.45, 200
SEED_SIGMA = 0.0145  # with the binomial error of 600 problems, 0.0203: 0.025
SIGMA = 0.025
ARMS = tuple(f"ARM_{i}" for i in range(1, 8))


@dataclass(frozen=True)
class Effect:
    """What one arm does, in sigmas of an overall score, from round `start` on."""

    dev: float = 0.0
    external: float = 0.0
    domain: str | None = None  # where all of it happens; None: alike in all
    start: int = 1

    def on(self, scored: str, domain: str, number: int) -> float:
        if number < self.start or self.domain not in (None, domain):
            return 0.0
        whole = self.dev if scored == "dev" else self.external
        return SIGMA * whole * (len(DOMAINS) if self.domain else 1)


def arms(
    effects: Mapping[str, Effect] | None = None,
    *,
    noise: float = 1.0,
    external_noise: float = 1.0,
    drift: float = 0.0,
    lost: float = 0.0,
) -> Truth:
    """A truth in which `effects` are all that happens; noise in multiples of the usual."""
    planted = effects or {}

    def score(scored: str, overrides: Overrides, number: int) -> Scores:
        on = [planted[arm] for arm in overrides.get(FILE, {}) if arm in planted]
        return {
            domain: BASE + sum(effect.on(scored, domain, number) for effect in on)
            for domain in DOMAINS
        }

    extra = SEED_SIGMA * max(0.0, external_noise**2 - noise**2) ** 0.5
    return Truth(
        present={FILE: dict.fromkeys((*ARMS, "SEED"), 0)},
        score=score,
        problems={scored: dict.fromkeys(DOMAINS, PROBLEMS) for scored in ("dev", "external")},
        sigma=SEED_SIGMA * noise,
        own_sigma={"external": extra},
        items={"dev": noise, "external": external_noise},
        drift=drift * SIGMA,
        lost=lost,
    )


def arms_policy(names: tuple[str, ...] = ARMS, *, looks: int = 4, choices: int = 1) -> SearchPolicy:
    """A policy with one axis for each arm, whose edits (`choices` of them) are all alike."""
    policy = SearchPolicy(
        version=1,
        parent=None,
        objective="Raise external.",
        evidence_ranking=["external", "dev"],
        axes=[
            Axis(
                id=name.lower().replace("_", "-"),
                title=name,
                hypothesis="It may help.",
                knobs=[
                    ChoiceKnob(
                        kind="choice", file=FILE, constant=name, choices=list(range(1, choices + 1))
                    )
                ],
            )
            for name in names
        ],
    )
    budget = policy.budget.model_copy(update={"looks": looks})
    return policy.model_copy(update={"budget": budget})


def promoted(policy: SearchPolicy) -> set[str]:
    """The arms in the standing recipe."""
    return set(policy.standing_recipe.overrides.get(FILE, {}))

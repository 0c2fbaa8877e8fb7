"""Truths to search: the stub substrate's, random ones, and one in which nothing helps."""

import math
import random
from dataclasses import dataclass, replace
from pathlib import Path

from policies.policy import Axis, Constant, NumberKnob, Overrides, SearchPolicy
from policies.report import OutcomeName
from tests.simulation.campaign import Scores, Truth
from tests.substrates.stub import truth as stub

SIGMA = 0.01
PROBLEMS = {"dev": {"all": 600}, "external": {"all": 400}}
FILE = "recipes/random.py"
STUB_POLICY = Path(__file__).parents[1] / "substrates" / "stub" / "policies" / "stub.json"


def stub_truth() -> Truth:
    return Truth(
        present={stub.RECIPE: stub.DEFAULTS},
        score=lambda scored, overrides, number: {"all": stub.expected_score(scored, overrides)},
        problems=PROBLEMS,
        sigma=0.0,
        own_sigma=stub.SIGMA,
    )


def stub_policy() -> SearchPolicy:
    return SearchPolicy.model_validate_json(STUB_POLICY.read_text("utf-8"))


def nothing_helps() -> Truth:
    """The stub's constants, with the score of the recipe as it stands whatever they are."""
    flat = {"all": stub.expected_score("dev", {})}
    return replace(stub_truth(), score=lambda scored, overrides, number: flat)


@dataclass(frozen=True)
class Parabola:
    """What one constant does: `gain` in sigmas at the place `best` of its range (0 to 1)."""

    knob: NumberKnob
    present: float | int
    best: float
    gain: float

    def effect(self, value: Constant) -> float:
        assert isinstance(value, int | float)
        start = place(self.knob, self.present)
        loss = self.gain * ((place(self.knob, value) - self.best) / (start - self.best)) ** 2
        return max(self.gain - loss, -3 * self.gain)


@dataclass(frozen=True)
class RandomTruth:
    """Five constants that gain 2 to 6 sigmas, one that does nothing, and a rate that diverges."""

    truth: Truth
    policy: SearchPolicy
    gap: float  # from the recipe as it stands to the optimum


def random_truth(seed: int) -> RandomTruth:
    dice = random.Random(f"truth {seed}")
    kinds = {
        "RATE": ("float", 1e-4, 1e-1, "log"),
        "STEPS": ("int", 10, 500, "linear"),
        "TEMPERATURE": ("float", 0.2, 2.0, "linear"),
        "BATCH": ("int", 2, 64, "log"),
        "DECAY": ("float", 0.0, 1.0, "linear"),
        "PLACEBO": ("float", 0.0, 1.0, "linear"),
    }
    parabolas: dict[str, Parabola] = {}
    for name, (kind, low, high, scale) in kinds.items():
        knob = NumberKnob.model_validate(
            {"kind": kind, "file": FILE, "constant": name, "low": low, "high": high, "scale": scale}
        )
        start, best = 0.0, 0.0
        while not 0.2 <= abs(start - best) <= 0.6:
            start, best = dice.uniform(0.1, 0.9), dice.uniform(0.05, 0.95)
        present = value_at(knob, start)
        gain = 0.0 if name == "PLACEBO" else dice.uniform(2, 6)
        parabolas[name] = Parabola(knob, present, best, gain)
    rate = parabolas["RATE"]
    cliff = max(0.9, rate.best + 0.04)

    def score(scored: str, overrides: Overrides, number: int) -> Scores:
        values = overrides.get(FILE, {})
        effects = (p.effect(values.get(name, p.present)) for name, p in parabolas.items())
        return {"all": 0.45 + SIGMA * math.fsum(effects)}

    def outcome(overrides: Overrides) -> OutcomeName:
        value = overrides.get(FILE, {}).get("RATE", rate.present)
        assert isinstance(value, float)
        return "diverged" if place(rate.knob, value) > cliff else "evaluated"

    return RandomTruth(
        truth=Truth(
            present={FILE: {name: p.present for name, p in parabolas.items()}},
            score=score,
            problems=PROBLEMS,
            sigma=0.0,
            own_sigma={"dev": SIGMA, "external": SIGMA},
            outcome=outcome,
        ),
        policy=SearchPolicy(
            version=1,
            parent=None,
            objective="Raise dev.",
            evidence_ranking=["external", "dev"],
            axes=[
                Axis(id=name.lower(), title=name, hypothesis="It may help.", knobs=[p.knob])
                for name, p in parabolas.items()
            ],
        ),
        gap=SIGMA * math.fsum(p.gain for p in parabolas.values()),
    )


def place(knob: NumberKnob, value: float) -> float:
    """Where in its range a value lies, 0 to 1 on the knob's scale."""
    if knob.scale == "log":
        return math.log(value / knob.low) / math.log(knob.high / knob.low)
    return (value - knob.low) / (knob.high - knob.low)


def value_at(knob: NumberKnob, where: float) -> float | int:
    if knob.scale == "log":
        number = knob.low * (knob.high / knob.low) ** where
    else:
        number = knob.low + where * (knob.high - knob.low)
    return round(number) if knob.kind == "int" else float(f"{number:.4g}")


def with_trap(policy: SearchPolicy) -> SearchPolicy:
    """The stub's policy with an axis that raises dev and lowers external."""
    knob = NumberKnob(kind="float", file=stub.RECIPE, constant="MEMORISE", low=0.1, high=0.5)
    trap = Axis(id="memorise", title="Learn by heart", hypothesis="It pays.", knobs=[knob])
    return policy.model_copy(update={"axes": [*policy.axes, trap]})

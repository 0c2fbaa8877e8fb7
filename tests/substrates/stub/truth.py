"""What a trial on the stub scores in expectation, for any overrides: the truth that tests search.

Said here a second time, independently of `overlay/recipes/stub.py`; a test holds the two equal.
"""

import math
from collections.abc import Mapping

RECIPE = "recipes/stub.py"
DOMAINS = ("integers", "strings", "lists")
MIXTURE = {"dev": (0.5, 0.3, 0.2), "external": (0.2, 0.3, 0.5), "lockbox": (0.2, 0.3, 0.5)}
BASE_SKILLS = (0.36, 0.28, 0.20)
GAIN = 0.34

Constant = bool | int | float | str | None | list["Constant"]
Constants = Mapping[str, Constant]

DEFAULTS: dict[str, Constant] = {
    "LEARNING_RATE": 3e-4,
    "TEMPERATURE": 0.6,
    "GROUP_SIZE": 4,
    "FRONTIER_SHARE": 0.25,
    "REHEARSAL": 0.0,
    "BASELINE": "mean",
    "WARMUP": 0.1,
    "MEMORISE": 0.0,
}
OPTIMUM: dict[str, Constant] = {
    "LEARNING_RATE": 2e-3,
    "TEMPERATURE": 1.0,
    "GROUP_SIZE": 16,
    "FRONTIER_SHARE": 0.6,
    "REHEARSAL": 0.2,
    "BASELINE": "leave_one_out",
}
SIGMA = {"dev": 0.010, "external": 0.011, "lockbox": 0.010}  # of one trial, by seed, about


def expected_score(scored: str, overrides: Mapping[str, Constants]) -> float:
    """The score to expect on `dev`, `external` or `lockbox`, of overrides by file and name.

    Right to about 0.003, and less so where a skill comes near 0 or 1.

    Raises KeyError for a constant of the recipe that has no known effect, or for another file.
    """
    skills = expected_skills(overrides)
    recalled = float(_number(overrides, "MEMORISE")) if scored == "dev" else 0.0
    solved = [skill + (1 - skill) * recalled for skill in skills]
    return math.fsum(share * s for share, s in zip(MIXTURE[scored], solved, strict=True))


def expected_skills(overrides: Mapping[str, Constants]) -> tuple[float, float, float]:
    """The share of problems that the adapter is able to solve, by domain in DOMAINS' order."""
    unknown = [file for file in overrides if file != RECIPE]
    unknown += [name for name in overrides.get(RECIPE, {}) if name not in DEFAULTS]
    if unknown:
        raise KeyError(f"wanted constants out of {sorted(DEFAULTS)}, found {unknown}")
    loss = {name: _loss(name, overrides) for name in OPTIMUM}
    alike = math.fsum(loss[n] for n in ("LEARNING_RATE", "TEMPERATURE", "GROUP_SIZE", "BASELINE"))
    alike += _number(overrides, "MEMORISE") / 4
    by_domain = [
        0.6 * loss["FRONTIER_SHARE"] + 1.4 * loss["REHEARSAL"],
        1.0 * loss["FRONTIER_SHARE"] + 0.6 * loss["REHEARSAL"],
        2.0 * loss["FRONTIER_SHARE"] + 0.6 * loss["REHEARSAL"],
    ]
    integers, strings, lists = (
        min(1.0, max(0.0, base + GAIN - alike - own))
        for base, own in zip(BASE_SKILLS, by_domain, strict=True)
    )
    return integers, strings, lists


def gap(scored: str, overrides: Mapping[str, Constants]) -> float:
    """How far below the optimum the expected score lies."""
    return expected_score(scored, {RECIPE: OPTIMUM}) - expected_score(scored, overrides)


def _loss(name: str, overrides: Mapping[str, Constants]) -> float:
    if name == "BASELINE":
        return {"none": 0.08, "mean": 0.03, "leave_one_out": 0.0}[str(_value(overrides, name))]
    value = _number(overrides, name)
    match name:
        case "LEARNING_RATE":  # 0.8239 decades lose 0.045
            return 0.06629 * (math.log10(value) + 2.69897) ** 2
        case "TEMPERATURE":
            return 0.1875 * (value - 1.0) ** 2
        case "GROUP_SIZE":
            return 0.0075 * (math.log2(value) - 4) ** 2
        case "FRONTIER_SHARE":  # 0.35 loses 0.035
            return 0.2857143 * (value - 0.6) ** 2
        case "REHEARSAL":
            return 0.625 * (value - 0.2) ** 2
    raise KeyError(name)


def _value(overrides: Mapping[str, Constants], name: str) -> Constant:
    return overrides.get(RECIPE, {}).get(name, DEFAULTS[name])


def _number(overrides: Mapping[str, Constants], name: str) -> float:
    value = _value(overrides, name)
    assert isinstance(value, int | float), f"wanted a number for {name}, found {value!r}"
    return value

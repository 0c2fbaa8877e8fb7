"""Trust in dev: what a policy says of it after an alarm, and when it comes back."""

import pytest

from agents.trust import asked_for, trust_after, without
from agents.window import Notes, read_window
from policies.policy import Edit, Promotion, SearchPolicy, StandingRecipe, Trust
from policies.report import Decoupling
from tests.agents.rounds import FILE, Row, choice_axis, play, policy_of, rate_axis, setting

START = policy_of(rate_axis("rate"), choice_axis("kind", "a", "b"))


def examined(domain: str, verdict: str, external: float = 0.0) -> Decoupling:
    return Decoupling.model_validate(
        {
            "domain": domain,
            "verdict": verdict,
            "probability": 0.001,
            "level": 0.01,
            "axis": "rate",
            "dev_change": 0.1,
            "external_change": external,
            "external_error": 0.02,
            "shortfall": 0.05,
            "error": 0.02,
            "pairs": 2,
            "rows": ["r1/s1/dev/sums"],
        }
    )


def told(before: dict[str, Trust], *tests: Decoupling) -> tuple[dict[str, Trust], list[str]]:
    policy = START.model_copy(update={"trust": before})
    report = play(policy, {0: Row(external=0.5), 1: Row(0.1, setting("RATE", 0.1), 0.5)}).report
    results = report.results.model_copy(update={"decoupling": list(tests)})
    report = report.model_copy(update={"results": results})
    notes = Notes()
    trust = trust_after(read_window(policy, report, []), notes)
    return trust, [claim.text for claim in notes.claims]


def test_an_alarm_makes_a_domain_suspect_and_a_falling_external_inverts_it() -> None:
    assert told({}, examined("sums", "decoupled"))[0] == {"sums": "suspect"}
    # One twentieth of t with few degrees is some two errors of 0.02: 0.2 lower is beyond them.
    trust, claims = told({}, examined("sums", "decoupled", external=-0.2))
    assert trust == {"sums": "inverted"}
    assert claims == [
        "Dev is inverted in sums: it rose by +0.1000 and external by -0.2000 "
        "(probability 0.001 if it tracked)."
    ]


def test_what_was_inverted_is_not_softened_and_what_is_known_is_not_said_again() -> None:
    assert told({"sums": "inverted"}, examined("sums", "decoupled")) == ({"sums": "inverted"}, [])
    assert told({"sums": "suspect"}, examined("sums", "decoupled")) == ({"sums": "suspect"}, [])


@pytest.mark.parametrize("word", ["suspect", "inverted"])
def test_trust_comes_back_where_external_follows_again(word: Trust) -> None:
    trust, claims = told({"sums": word}, examined("sums", "tracking"))
    assert trust == {"sums": "trusted"}
    assert "trusted again" in claims[0]
    assert told({"sums": word}, examined("sums", "insufficient"))[0] == {"sums": word}


def test_the_policy_asks_for_what_misleads_less_and_takes_it_back() -> None:
    policy = START.model_copy(update={"evidence_ranking": ["external", "single dev scores"]})
    objective, ranking = asked_for(policy, {"sums": "suspect"})
    assert objective.startswith("Raise the external score. Dev misleads in sums:")
    assert "lower dev there" in objective
    assert ranking == ["external", "single dev scores (without sums)"]
    after = policy.model_copy(update={"objective": objective, "evidence_ranking": ranking})
    assert asked_for(after, {"sums": "suspect"}) == (objective, ranking)
    assert asked_for(after, {"sums": "trusted"}) == (policy.objective, policy.evidence_ranking)


def test_an_objective_that_is_full_stays_within_its_bounds() -> None:
    policy = START.model_copy(update={"objective": "x" * 2000})
    objective, _ = asked_for(policy, {"overall": "inverted"})
    assert len(objective) == 2000
    draft = SearchPolicy.model_validate(policy.data() | {"objective": objective})
    assert "Dev misleads in all domains" in draft.objective


def test_a_withdrawn_constant_takes_the_value_of_the_latest_promotion_that_is_left() -> None:
    def promotion(edit: Edit, row: str) -> Promotion:
        return Promotion(axis="rate", edit=edit, effect=0.1, rows=[row])

    first = promotion(setting("RATE", 0.1), "r1/s1")
    mixed = Edit(overrides={FILE: {"RATE": 0.2, "STEPS": 3}}, patch="a" * 64)
    second = promotion(mixed, "r2/s1")
    standing = StandingRecipe(
        overrides={FILE: {"RATE": 0.2, "STEPS": 3, "SEEDED": 1}},
        patches=["a" * 64],
        provenance=[first, second],
    )
    left = without(standing, [second])
    assert left.overrides == {FILE: {"RATE": 0.1, "SEEDED": 1}}
    assert (left.patches, left.provenance) == ([], [first])
    assert without(standing, []) == standing

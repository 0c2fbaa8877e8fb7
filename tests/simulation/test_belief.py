"""What campaigns on known arms come to believe: rates over many of them are in bench-evidence."""

import random
from collections.abc import Mapping

import pytest

from agents.collector import choose_looks, collect
from agents.reviser import revise
from policies.evidence import round_of
from policies.policy import Edit, SearchPolicy
from policies.report import DomainScore, RoundReport, SlotResult
from tests.simulation.arms import ARMS, DOMAINS, FILE, Effect, arms, arms_policy, promoted
from tests.simulation.campaign import ACCOUNT, SHA, Campaign, calibrate, expected, run_campaign

TRAP = {"ARM_4": Effect(dev=6, external=-1, domain="equations")}


def lost_trust(policy: SearchPolicy) -> set[str]:
    return {name for name, word in policy.trust.items() if word != "trusted"}


@pytest.fixture(scope="module")
def trapped() -> list[Campaign]:
    return [
        run_campaign(arms(TRAP), arms_policy(), seed=seed, rounds=6, calibrations=8)
        for seed in range(6)
    ]


def test_identical_arms_are_hardly_ever_promoted_and_raise_hardly_any_alarm() -> None:
    ends = [
        run_campaign(arms(), arms_policy(), seed=seed, rounds=8, calibrations=8).policies[-1]
        for seed in range(30)
    ]
    assert sum(bool(promoted(policy)) for policy in ends) <= 3
    assert sum(bool(lost_trust(policy)) for policy in ends) <= 3


def test_an_arm_of_three_sigmas_is_found_and_no_other() -> None:
    truth = arms({"ARM_4": Effect(3, 3)})
    ends = [
        run_campaign(truth, arms_policy(), seed=seed, rounds=8, calibrations=8).policies[-1]
        for seed in range(20)
    ]
    assert sum(promoted(policy) == {"ARM_4"} for policy in ends) >= 17


def test_edits_of_seeds_alone_are_never_promoted_however_lucky() -> None:
    policy = arms_policy(("SEED", *ARMS[:6]))
    lucky = {"SEED": Effect(dev=5, external=5)}
    for seed in range(5):
        end = run_campaign(arms(lucky), policy, seed=seed, rounds=6, calibrations=8)
        assert "SEED" not in promoted(end.policies[-1])
        assert all(
            r.edit.overrides != {FILE: {"SEED": 1}} for p in end.policies for r in p.replicates
        )


def test_lost_trials_and_drift_change_the_pace_and_not_the_finding() -> None:
    truth = arms({"ARM_4": Effect(4, 4)}, lost=0.2, drift=0.05)
    ends = [
        run_campaign(truth, arms_policy(), seed=seed, rounds=8, calibrations=8).policies[-1]
        for seed in range(8)
    ]
    assert sum("ARM_4" in promoted(policy) for policy in ends) >= 6


def test_a_trap_is_named_with_rows_and_the_search_asks_for_what_it_is_after(
    trapped: list[Campaign],
) -> None:
    for campaign in trapped:
        last = campaign.policies[-1]
        assert lost_trust(last) == {"equations"}
        assert "Dev misleads in equations" in last.objective
        assert last.evidence_ranking == ["external", "dev without equations"]
        assert "ARM_4" not in promoted(last)
        alarm = next(r for r in campaign.reports if r.results.ignored)
        (test,) = [d for d in alarm.results.decoupling if d.verdict == "decoupled"]
        assert (test.domain, test.axis) == ("equations", "arm-4")
        after = campaign.policies[alarm.round]
        assert any(test.rows[0] in claim.rows for claim in after.claims)


def test_after_an_alarm_the_decoupled_dev_score_decides_nothing(trapped: list[Campaign]) -> None:
    for campaign in trapped:
        for i, policy in enumerate(campaign.policies[:-1]):
            if lost_trust(policy):
                true, false = decided(campaign, i), decided(campaign, i, scramble=random.Random(i))
                assert true == false
                assert true["looks"] == campaign.reports[i].results.looks


def decided(
    campaign: Campaign, index: int, scramble: random.Random | None = None
) -> Mapping[str, object]:
    """What a round's rows make of the policy, with equations' dev scores as drawn, or at random."""
    policies, calibration = campaign.policies, calibrate(arms(TRAP), 0, 8)
    policy = policies[index]
    reports: list[RoundReport] = []
    rounds = []
    for number, past in enumerate(campaign.reports[: index + 1], start=1):
        slots = [without_meaning(slot, scramble) for slot in past.results.slots]
        results = collect(
            number=number,
            policy=policies[number - 1],
            slots=slots,
            looks=past.results.looks,
            history=rounds,
            direction="maximise",
            substrate_sha256=SHA,
            constitution_sha256=SHA,
            recipe="simulated",
            calibration=calibration,
        )
        rounds.append(round_of(number, policies[number - 1], slots))
        reports.append(RoundReport(campaign="c", round=number, results=results, account=ACCOUNT))
    draft = revise(policy, reports[-1], reports)
    looks = choose_looks(
        {slot.slot: slot.dev for slot in rounds[-1].slots},
        policy=policy,
        looks=policy.budget.looks,
        seed=0,
        direction="maximise",
    )
    kept = ("axes", "replicates", "standing_recipe", "dead_ends", "noise")
    return {
        **{name: value for name, value in draft.data().items() if name in kept},
        "looks": campaign.reports[index].results.looks,
        "next looks": looks,
    }


def without_meaning(slot: SlotResult, dice: random.Random | None) -> SlotResult:
    if slot.dev is None or dice is None:
        return slot
    parts = dict(slot.dev.domains)
    parts["equations"] = DomainScore(value=dice.random(), n=parts["equations"].n)
    dev = slot.dev.model_copy(update={"domains": parts, "value": dice.random()})
    return slot.model_copy(update={"dev": dev})


def test_a_promotion_that_only_the_misleading_domain_spoke_for_is_withdrawn() -> None:
    """The trap is harmless on external while it is confirmed, and harms from round 5 on."""
    policy = arms_policy(looks=4)
    standing = policy.standing_recipe
    for seed in range(4):
        slow = arms({"ARM_4": Effect(dev=5, external=0, domain="equations")}, external_noise=1.0)
        # One look a round, at the anchor: the alarm comes when the trap stands already.
        blind = arms_policy(looks=1)
        campaign = run_campaign(slow, blind, seed=seed, rounds=9, calibrations=8)
        fell = [i for i, each in enumerate(campaign.policies) if "ARM_4" in promoted(each)]
        rose = list(range(fell[-1] + 1, 10)) if fell else []
        assert fell and rose, "promoted on dev alone, then withdrawn"
        after = campaign.policies[rose[0]]
        assert after.standing_recipe.overrides == standing.overrides
        assert any("is withdrawn" in claim.text for claim in after.claims)
        assert lost_trust(after) >= {"equations"}


def test_domains_are_the_ones_of_both_sets() -> None:
    report = run_campaign(arms(), arms_policy(), seed=0, rounds=1, calibrations=8).reports[0]
    assert [test.domain for test in report.results.decoupling] == ["overall", *DOMAINS]
    assert report.results.noise.calibration == 8
    assert Edit() in [slot.edit for slot in report.results.slots]


def test_the_final_external_score_is_higher_with_the_test_than_without() -> None:
    def end(seed: int, *, is_tested: bool) -> float:
        truth = arms({"ARM_4": Effect(dev=5, external=-1, domain="equations")})
        campaign = run_campaign(
            truth,
            arms_policy(looks=1),
            seed=seed,
            rounds=8,
            calibrations=8,
            is_tested=is_tested,
        )
        return expected(truth, campaign.policies[-1], "external")

    gains = [end(seed, is_tested=True) - end(seed, is_tested=False) for seed in range(6)]
    assert sum(gains) > 0

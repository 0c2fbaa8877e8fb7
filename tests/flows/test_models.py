"""Campaigns on the stub in which models take part, with scripts in their place."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prefect.exceptions import CancelledRun

from agents.exchange import prompt_sha256
from agents.journal import Exchange, ReplayDiverged
from agents.messages import Converse, ProviderFailure, Request, SpendCapReached
from flows import round as steps
from flows.calling import Speaker, answered_by
from flows.campaign import campaign, first_cause, resume
from flows.house import House, open_house
from flows.narration import UNUSED, narrate_round
from flows.plan import Plan
from flows.rerun import answers_of, begin_rerun, compare_rerun, is_rerun
from flows.revision import decide, revise_policy
from flows.start import BadPlan, check_plan, start_campaign
from flows.trial import run_trial
from policies.canonical import canonical_json
from policies.caps import Scope
from policies.ledger import NotInLedger
from policies.rejection import REJECTED, read_rejections
from policies.report import RoundReport
from tests.agents.scripted import Line, Script, context_of, says, script, uses

STUB = Path(__file__).parents[1] / "substrates" / "stub"
RECIPE = "recipes/stub.py"
WIDTH = 3
MODEL, META = "anthropic:scripted", "openai:scripted"
CLAIM = "The anchor ran."

Draft = dict[str, Any]


class Cast:
    """Everyone who speaks in a campaign, each with a script, and what each was asked."""

    def __init__(self, written: Callable[[House, Speaker], Script]) -> None:
        self.written = written
        self.scripts: dict[Speaker, Script] = {}

    def __call__(self, house: House, speaker: Speaker) -> Converse:
        self.scripts[speaker] = self.written(house, speaker)
        return self.scripts[speaker]

    def asked(self, role: str) -> list[Request]:
        return [
            asked for who, each in self.scripts.items() if who.role == role for asked in each.asked
        ]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        patch.setenv("SEEDBED_HOME", str(home))
        priced = (f'"{model}" = {{ input = 1, output = 1 }}\n' for model in (MODEL, META))
        (home / "prices.toml").write_text("[models]\n" + "".join(priced))
        yield open_house()


def started(house: House, **changes: Any) -> str:
    fields = {"substrate": str(STUB), "rounds": 2, "width": WIDTH, "seed": 1, "worker": MODEL}
    return start_campaign(house, Plan.model_validate({**fields, **changes}))


async def trials(house: House, campaign_id: str) -> RoundReport:
    """The first round's trials, without Prefect, and the report of them."""
    await steps.open_round(house, campaign_id, 1)
    for slot in range(WIDTH):
        await run_trial(campaign_id, 1, slot)
    return steps.build_report(house, campaign_id, 1)


def a_worker(speaker: Speaker) -> Script:
    """Breaks the recipe, sees it fail, repairs it, runs it again, may score it, hands in."""
    value = 1e-3 + 1e-4 * (speaker.slot or 0) + 1e-5 * speaker.round
    scores = [uses("dev_score", folder="out/adapter")] if speaker.slot == 1 else []
    return script(
        uses("edit", path=RECIPE, old="LEARNING_RATE = 3e-4", new="LEARNING_RATE = 1 / 0"),
        uses("run_recipe", kind="smoke"),
        uses("edit", path=RECIPE, old="LEARNING_RATE = 1 / 0", new=f"LEARNING_RATE = {value}"),
        uses("run_recipe", kind="draft"),
        *scores,
        uses("hand_in", hypothesis=f"sibling-{speaker.slot} says so", notes="notes of mine"),
    )


def lawful(house: House, speaker: Speaker) -> Draft:
    """A lawful next policy, as a model would write it: without what code fills in."""
    report = steps.build_report(house, speaker.campaign, speaker.round)
    parent = house.policy_of_round(speaker.campaign, speaker.round)
    history = [past for past in house.reports(speaker.campaign) if past.round < speaker.round]
    draft = json.loads(decide(parent, report, history))
    del draft["window"]
    draft["claims"] = [{"id": "ran", "text": CLAIM, "rows": [f"r{speaker.round}/s0"]}]
    draft["noise"]["external_sigma"] = None
    draft["rationale"] = "A model wrote this."
    return draft


def greedy(house: House, speaker: Speaker) -> Draft:
    draft = lawful(house, speaker)
    draft["budget"]["looks"] = 99
    return draft


def everyone(house: House, speaker: Speaker) -> Script:
    if speaker.role == "worker":
        return a_worker(speaker)
    if speaker.role == "collector":
        told = "r1/s1 gained 0.99." if speaker.round == 1 else "Nothing new in r2/s0."
        return script(says(json.dumps({"narrative": told})))
    return script(
        lambda _: says(json.dumps(greedy(house, speaker))),
        lambda _: says(f"```json\n{json.dumps(lawful(house, speaker))}\n```"),
    )


@dataclass(frozen=True)
class Campaign:
    """One that was run with models in every role."""

    id: str
    cast: Cast
    house: House


@pytest.fixture(scope="module")
def done(house: House, prefect_api: str) -> Campaign:
    """Two rounds, through the flow: workers, collector and meta-agent are models."""
    cast = Cast(everyone)
    fields = {"substrate": str(STUB), "rounds": 2, "width": WIDTH, "seed": 3, "worker": MODEL}
    plan = Plan.model_validate({**fields, "meta": META, "collector": MODEL})
    with answered_by(cast):
        return Campaign(str(asyncio.run(campaign(plan))), cast, house)


def test_workers_repair_a_failing_recipe_and_the_meta_agent_a_draft_that_breaks_a_clause(
    done: Campaign,
) -> None:
    for report in done.house.reports(done.id):
        for slot in report.results.slots:
            assert slot.outcome == "evaluated"
            if slot.kind == "explore":
                assert slot.hypothesis == f"sibling-{slot.slot} says so"
                assert set(slot.edit.overrides[RECIPE]) == {"LEARNING_RATE"}
    policies = done.house.ledger.policies(done.id)
    assert [(row.version, row.author) for row in policies] == [(1, "seed"), (2, META), (3, META)]
    two, first = done.house.policy(done.id, 2), done.house.reports(done.id)[0]
    assert two.rationale == "A model wrote this." and two.window is not None
    assert [finding.value for finding in two.claims[0].findings] == ["evaluated"]
    assert two.noise.external_sigma == first.results.noise.external_sigma
    told = done.cast.asked("meta")[1].messages[-1].text
    assert "C8" in told and "budget.looks: 99" in told
    assert read_rejections(done.house.ledger.events(done.id, REJECTED)) == []


def test_the_prompts_of_a_revision_are_on_record_by_hash_and_hold_the_round_report(
    done: Campaign,
) -> None:
    asked = done.cast.asked("meta")
    notes = [json.loads(e.body) for e in done.house.ledger.events(done.id, steps.ASKED)]
    assert [(note["author"], note["turns"]) for note in notes] == [(META, 2), (META, 2)]
    assert [sha for note in notes for sha in note["prompts"]] == [prompt_sha256(r) for r in asked]
    for request, report in zip(asked[::2], done.house.reports(done.id), strict=True):
        told = request.messages[0].text
        assert f"# The report of round {report.round}" in told
        for slot in report.results.slots:
            assert slot.dev is not None and str(slot.dev.value) in told
            assert slot.diff_sha256 is None or slot.diff_sha256[:12] in told
            assert str(slot.seed) in told


def test_a_narrative_with_an_invented_number_is_not_used_and_one_that_holds_is(
    done: Campaign,
) -> None:
    first, second = done.house.reports(done.id)
    assert first.results.narrative.startswith("Round 1 ran 3 trials")
    assert second.results.narrative == "Nothing new in r2/s0."
    (note,) = [json.loads(e.body) for e in done.house.ledger.events(done.id, UNUSED)]
    assert "0.99" in note["fault"] and note["author"] == MODEL
    stored = done.house.ledger.report(done.id, 2)
    again = steps.build_report(done.house, done.id, 2)
    assert stored is not None and canonical_json(again.data()) == stored.body


def test_what_a_worker_causes_is_counted_before_and_after(done: Campaign) -> None:
    ledger = done.house.ledger
    explored = [row for row in ledger.trials(done.id) if row.kind == "explore" and row.slot == 1]
    spends = [row for row in ledger.spends(done.id) if row.unit == "dev_scores"]
    assert sorted((row.subject, row.state) for row in spends) == sorted(
        (f"r{row.round}/s{row.slot}/a1/score/1", state)
        for row in explored
        for state in ("reserved", "settled")
    )
    scored = [json.loads(e.body) for e in ledger.events(done.id, "draft.scored")]
    assert len(scored) == len(explored) and all(0 < note["dev"] < 1 for note in scored)
    assert {row.unit for row in ledger.spends(done.id)} == {
        "smokes",
        "drafts",
        "dev_scores",
        "looks",
    }


def test_no_worker_ever_reads_external_scores_claims_evidence_or_siblings(done: Campaign) -> None:
    externals = {
        f"{value:.4f}"
        for report in done.house.reports(done.id)
        for slot in report.results.slots
        if slot.external
        for value in [slot.external.value, *(d.value for d in slot.external.domains.values())]
    }
    workers = {who: each for who, each in done.cast.scripts.items() if who.role == "worker"}
    assert externals and len(workers) >= 3
    for who, each in workers.items():
        told = " ".join(context_of(request) for request in each.asked)
        assert "# Your axis" in told and ("dev accuracy" in told) is (who.slot == 1)
        for forbidden in ("external", "evidence", "trust", CLAIM, "A model wrote this"):
            assert forbidden not in told
        without_dev_scores = re.sub(r"dev accuracy [^']*'", "", told)
        assert not any(value in without_dev_scores for value in externals)
        siblings = {f"sibling-{slot}" for slot in range(WIDTH)} - {f"sibling-{who.slot}"}
        assert not any(sibling in told for sibling in siblings)


def test_models_learn_of_external_scores_by_the_ladder_alone(done: Campaign) -> None:
    asked = [*done.cast.asked("meta"), *done.cast.asked("collector")]
    told = " ".join(context_of(request) for request in asked)
    hidden: set[float] = set()
    for report in done.house.reports(done.id):
        results = report.results
        hidden |= {v.external_effect for v in results.verdicts if v.external_effect is not None}
        hidden |= {c.external_effect for c in results.confirmations if c.external_effect}
        hidden |= {results.noise.external_sigma} - {None}  # pyright: ignore[reportAssignmentType]
    assert hidden
    assert not any(repr(value) in told for value in hidden if len(repr(value)) > 6)


def test_a_rerun_from_the_journal_asks_nobody_and_ends_with_the_same_policies(
    done: Campaign,
) -> None:
    house, scripts = done.house, done.cast.scripts
    new = begin_rerun(house, done.id)

    def journal(who: Speaker) -> list[Exchange]:
        said = zip(scripts[who].asked, scripts[who].said, strict=True)
        return [Exchange(who.model, request, reply) for request, reply in said]

    with answered_by(answers_of(done.id, journal, house)):
        assert asyncio.run(resume(new)) == new
    steps_of_both = compare_rerun(house, done.id, new)
    assert [step.name for step in steps_of_both if not step.is_same] == []
    assert len(steps_of_both) == 3 + 2
    assert is_rerun(house, new) and not is_rerun(house, done.id)
    unlike = compare_rerun(house, done.id, started(house, seed=4))
    assert [step.name for step in unlike if step.is_same] == ["policy 1"]


def test_a_journal_without_an_exchange_stops_the_rerun(done: Campaign) -> None:
    with (
        answered_by(answers_of(done.id, lambda _who: [], done.house)),
        pytest.raises(ReplayDiverged, match="the journal has 0"),
    ):
        asyncio.run(trials(done.house, begin_rerun(done.house, done.id)))


def test_an_unfinished_campaign_is_not_run_again(house: House) -> None:
    with pytest.raises(NotInLedger, match="0 of 2 rounds"):
        begin_rerun(house, started(house))


def test_drafts_beyond_a_cap_are_refused_and_have_seeds_of_their_own(house: House) -> None:
    lines: list[Line] = [
        uses("run_recipe", kind="draft"),
        *[uses("dev_score", folder="out/adapter")] * 3,
        uses("hand_in", hypothesis="Nothing was changed."),
    ]
    cast = Cast(lambda _house, _speaker: script(*lines))
    with answered_by(cast):
        campaign_id = started(house, work={"dev_scores": 2})
        report = asyncio.run(trials(house, campaign_id))

    assert [slot.outcome for slot in report.results.slots[1:]] == ["no_change"] * 2
    reserved = [row for row in house.ledger.spends(campaign_id) if row.state == "reserved"]
    assert [row.unit for row in reserved].count("dev_scores") == 2 * 2
    told = [context_of(request) for request in cast.asked("worker")]
    assert sum("found all 2 used" in text for text in told) == 2
    dev = report.results.slots[0].dev
    drafted = {json.loads(e.body)["dev"] for e in house.ledger.events(campaign_id, "draft.scored")}
    assert dev is not None and dev.value not in drafted


def test_a_worker_that_reaches_for_another_process_is_tampered_whatever_it_hands_in(
    house: House,
) -> None:
    def worker(_house: House, speaker: Speaker) -> Script:
        reach = uses("shell", command="cat /proc/1/environ")
        if speaker.slot == 2:
            return script(reach, says("I would rather not.", "refusal"))
        edit = uses("edit", path=RECIPE, old="LEARNING_RATE = 3e-4", new="LEARNING_RATE = 1e-3")
        return script(reach, edit, uses("hand_in", hypothesis="It learns faster."))

    with answered_by(Cast(worker)):
        campaign_id = started(house)
        report = asyncio.run(trials(house, campaign_id))
    for slot in report.results.slots[1:]:
        assert (slot.outcome, slot.integrity, slot.dev) == ("tampered", ["tamper_attempt"], None)
    assert report.results.slots[1].discarded is not None  # the counted run was made and scored
    told = [event.detail for event in report.account.integrity]
    assert len(told) == 2 and all("in a command: another process" in detail for detail in told)


def test_every_way_to_end_without_a_hand_in_is_an_outcome_and_the_round_goes_on(
    house: House,
) -> None:
    ends: dict[int | None, Script] = {
        1: script(says("I would rather not.", "refusal")),
        2: script(ProviderFailure("reset by peer", permanent=False)),
    }
    with answered_by(lambda _house, speaker: Script(ends[speaker.slot].lines)):
        campaign_id = started(house, budget={"attempts": 2})
        report = asyncio.run(trials(house, campaign_id))
    outcomes = [slot.outcome for slot in report.results.slots]
    assert outcomes == ["evaluated", "refused", "infrastructure"]
    assert [account.attempts for account in report.account.slots] == [1, 1, 2]
    assert "reset by peer" in report.account.slots[2].reason


@pytest.mark.parametrize(
    "failure",
    [ProviderFailure("401: no such key", permanent=True), SpendCapReached("0.02 USD left")],
)
def test_what_no_try_will_help_stops_and_nothing_of_the_trial_is_recorded(
    failure: Exception, house: House
) -> None:
    with answered_by(lambda _house, _speaker: script(failure)):
        campaign_id = started(house)
        with pytest.raises(type(failure), match=str(failure)[:3]):
            asyncio.run(trials(house, campaign_id))
    assert [row.slot for row in house.ledger.trials(campaign_id)] == [0]


@pytest.mark.slow
def test_a_cap_on_spending_pauses_a_campaign_and_a_permanent_failure_ends_it_with_its_cause(
    house: House, prefect_api: str
) -> None:
    fields = {"substrate": str(STUB), "rounds": 1, "width": WIDTH, "worker": MODEL}
    plan = Plan.model_validate(fields)
    with (
        answered_by(lambda _house, _speaker: script(SpendCapReached("0.02 USD are left"))),
        pytest.raises(CancelledRun, match=r"paused: 0\.02 USD are left; `seedbed resume"),
    ):
        asyncio.run(campaign(plan))
    paused = house.ledger.find_campaign(None).id
    with answered_by(Cast(everyone)):
        assert asyncio.run(resume(paused)) == paused
    assert len(house.reports(paused)) == 1
    with (
        answered_by(lambda _house, _speaker: script(ProviderFailure("401: key", permanent=True))),
        pytest.raises(BaseExceptionGroup) as stopped,
    ):
        asyncio.run(campaign(plan))
    assert str(first_cause(stopped.value)) == "401: key"


@pytest.mark.parametrize(("scope", "pauses"), [("call", False), ("trial", False), ("round", True)])
def test_a_cap_of_a_call_or_a_trial_ends_the_trial_and_one_of_the_round_pauses(
    scope: Scope, pauses: bool, house: House
) -> None:
    reached = SpendCapReached("nothing is left", scope)
    with answered_by(lambda _house, _speaker: script(reached)):
        campaign_id = started(house)
        if pauses:
            with pytest.raises(SpendCapReached):
                asyncio.run(trials(house, campaign_id))
            return
        report = asyncio.run(trials(house, campaign_id))
    assert [slot.outcome for slot in report.results.slots[1:]] == ["over_budget"] * 2
    # A call that was refused is in no journal; a rerun has it refused again.
    with answered_by(answers_of(campaign_id, lambda _speaker: [], house)):
        again = asyncio.run(trials(house, started(house)))
    assert again.results.slots == report.results.slots


@pytest.mark.parametrize("role", ["meta", "collector"])
def test_a_cap_of_a_call_leaves_a_round_its_policy_and_the_narrative_of_code(
    role: str, house: House
) -> None:
    reached = SpendCapReached("one call costs too much", "call")
    with answered_by(lambda _house, _speaker: script(reached)):
        campaign_id = started(house, worker="sampler", **{role: MODEL})
        report = asyncio.run(trials(house, campaign_id))
        asyncio.run(narrate_round(house, campaign_id, report))
        revision = asyncio.run(revise_policy(house, campaign_id, report))
    steps.record_round(house, campaign_id, report, revision)
    with answered_by(answers_of(campaign_id, lambda _speaker: [], house)):
        rerun_id = started(house, worker="sampler", **{role: MODEL})
        again = asyncio.run(trials(house, rerun_id))
        asyncio.run(narrate_round(house, rerun_id, again))
        asyncio.run(revise_policy(house, rerun_id, again))
    if role == "meta":
        assert revision.policy is None and "too much" in revision.violations[0].reason
    else:
        (note,) = house.ledger.events(campaign_id, UNUSED)
        assert "too much" in json.loads(note.body)["fault"]
        assert steps.build_report(house, campaign_id, 1) == report


@pytest.mark.parametrize(
    ("changes", "found"),
    [({"meta": "oracle"}, "'oracle'"), ({"collector": "anthropic:"}, "'anthropic:'")],
)
def test_an_unknown_meta_agent_or_collector_is_refused(changes: Draft, found: str) -> None:
    with pytest.raises(BadPlan, match=found):
        check_plan(Plan.model_validate({"substrate": str(STUB), **changes}))

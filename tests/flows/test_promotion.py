"""A campaign on the stub whose promotion is earned, from its calibration to its model card.

The stub is planted: its recipe's BASELINE is "none", which loses 0.080 on every set, some eight
standard deviations of one trial, against "leave_one_out". Of its seed policy two axes are left, the
one that can take that back and a placebo. Nobody writes a policy but the reviser.
"""

import asyncio
import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from flows.campaign import campaign
from flows.cli import app
from flows.finale import SCORED, LockboxOpened, open_lockbox
from flows.house import House, open_house
from flows.plan import EndPlan, Plan
from policies.policy import Edit, Overrides, Promotion
from policies.report import SetScore
from policies.tables import OVERALL, Arm, sha256_of

STUB = Path(__file__).parent.parent / "substrates" / "stub"
RECIPE = "recipes/stub.py"
EARNED: Overrides = {RECIPE: {"BASELINE": "leave_one_out"}}
WORTH = 0.080
T4 = 2.776445  # 97.5 % point of Student's t with 4 degrees of freedom, from tables


@dataclass(frozen=True)
class Ended:
    """The campaign after its end, and what `seedbed export --json` said of it."""

    house: House
    id: str
    said: dict[str, Any]

    @property
    def folder(self) -> Path:
        return Path(self.said["folder"])

    @property
    def card(self) -> str:
        return (self.folder / "README.md").read_text()

    @property
    def lineage(self) -> dict[str, Any]:
        return json.loads((self.folder / "lineage.json").read_text())

    def promotion(self) -> Promotion:
        """What the newest policy stands on: one promotion, and no more."""
        (promotion,) = self.house.policy(self.id).standing_recipe.provenance
        return promotion

    def final_scores(self, arm: Arm, which: str) -> list[float]:
        rows = self.house.ledger.final_runs(self.id, arm)
        texts = [row.dev if which == "dev" else row.external for row in rows]
        return [SetScore.model_validate_json(text).value for text in texts if text]

    def lockbox(self) -> dict[Arm, SetScore]:
        (event,) = self.house.ledger.events(self.id, kind=SCORED)
        scores = json.loads(event.body)
        return {arm: SetScore.model_validate(found["score"]) for arm, found in scores.items()}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, prefect_api: str) -> Iterator[Ended]:
    """Calibrated, searched for two rounds and ended, each as a user does it."""
    folder = tmp_path_factory.mktemp("promotion")
    stub = folder / "stub"
    shutil.copytree(STUB, stub)
    recipe = stub / "overlay" / RECIPE
    recipe.write_text(recipe.read_text().replace('\nBASELINE = "mean"', '\nBASELINE = "none"'))
    seed = stub / "policies" / "stub.json"
    policy = json.loads(seed.read_text())
    policy["axes"] = [axis for axis in policy["axes"] if axis["id"] in ("baseline", "warmup")]
    seed.write_text(json.dumps(policy))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDBED_HOME", str(folder / "home"))
        done = seedbed("substrate", "calibrate", str(stub), "--runs", "4")
        assert done.exit_code == 0, done.output
        plan = Plan(substrate=str(stub), rounds=2, width=5, seed=1, end=EndPlan(seeds=3))
        campaign_id = asyncio.run(campaign(plan))
        assert isinstance(campaign_id, str)
        done = seedbed("export", "--json")
        assert done.exit_code == 0, (done.output, done.exception)
        house = open_house()
        yield Ended(house, campaign_id, json.loads(done.stdout))
        house.ledger.close()


def seedbed(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_the_campaign_itself_promotes_what_was_planted_and_nothing_else(ended: Ended) -> None:
    policies = ended.house.ledger.policies(ended.id)
    assert [row.author for row in policies] == ["seed", "reviser", "reviser"]
    assert [ended.house.policy(ended.id, n).standing_recipe.overrides for n in (1, 2, 3)] == [
        *({}, {}, EARNED)
    ]
    promotion = ended.promotion()
    assert (promotion.axis, promotion.edit) == ("baseline", Edit(overrides=EARNED))


def test_it_rests_on_fresh_replicates_against_calibration_and_anchors(ended: Ended) -> None:
    ledger, promotion = ended.house.ledger, ended.promotion()
    first, *replicates = [
        row
        for row in ledger.trials(ended.id)
        if Edit.model_validate_json(row.edit) == promotion.edit and row.kind != "anchor"
    ][:3]
    assert (first.round, first.kind) == (1, "explore")
    assert [(row.round, row.kind) for row in replicates] == [(2, "replicate"), (2, "replicate")]
    assert len({first.seed, *(row.seed for row in replicates)}) == 3, "fresh ones"
    assert promotion.rows == [f"r2/s{row.slot}/dev/overall" for row in replicates]

    dev = {
        (row.round, row.slot): row.value
        for row in ledger.scores(ended.id, set="dev")
        if row.domain == OVERALL
    }
    standing = [
        dev[row.round, row.slot]
        for row in ledger.trials(ended.id)
        if Edit.model_validate_json(row.edit).is_empty() and row.outcome == "evaluated"
    ]
    calibrated = [
        SetScore.model_validate_json(row.dev).value
        for row in ledger.calibrations(ledger.campaign(ended.id).substrate_sha256, "stub", 960)
        if row.probe == "recipe" and row.dev
    ]
    assert len(calibrated) == 4 and len(standing) >= 2
    runs = [dev[row.round, row.slot] for row in replicates]
    assert promotion.effect == pytest.approx(fmean(runs) - fmean([*standing, *calibrated]))
    assert promotion.effect == pytest.approx(WORTH, abs=0.03)


def test_its_gain_is_confirmed_on_seeds_that_nothing_had(ended: Ended) -> None:
    ledger = ended.house.ledger
    runs = ledger.final_runs(ended.id)
    before = {row.seed for row in ledger.trials(ended.id)}
    before |= {row.seed for row in ledger.calibrations(ledger.campaign(ended.id).substrate_sha256)}
    assert len({row.seed for row in runs}) == 3 and not before & {row.seed for row in runs}

    new, old = (ended.final_scores(arm, "external") for arm in ("candidate", "baseline"))
    gain = fmean(new) - fmean(old)
    pooled = math.sqrt((stdev(new) ** 2 + stdev(old) ** 2) / 2)
    low = gain - T4 * pooled * math.sqrt(2 / 3)
    assert low > 0
    said = ended.lineage["effects"]["external"]
    assert (said["effect"], said["low"]) == pytest.approx((gain, low), abs=1e-5)
    assert said["is_confirmed"] is True
    assert f"**Confirmed on fresh seeds:** {gain:+.4f} on external ({low:+.4f} to " in ended.card


def test_its_lockbox_is_opened_once_and_a_second_opening_is_refused(ended: Ended) -> None:
    ledger = ended.house.ledger
    opening, scores = ledger.opening(ended.id), ended.lockbox()
    assert opening is not None
    first = {row.arm: row.adapter_sha256 for row in ledger.final_runs(ended.id) if row.number == 1}
    assert opening.candidate_sha256 == ended.said["adapter"] == first["candidate"]
    assert opening.baseline_sha256 == first["baseline"]
    assert scores["candidate"].value - scores["baseline"].value == pytest.approx(WORTH, abs=0.04)

    with pytest.raises(LockboxOpened, match="it is opened once"):
        asyncio.run(open_lockbox(ended.house, ended.id))
    again = seedbed("export", "--json")
    assert again.exit_code == 0 and json.loads(again.stdout) == ended.said
    kinds = [event.kind for event in ledger.events(ended.id)]
    assert kinds.count("opening") == kinds.count(SCORED) == kinds.count("campaign.exported") == 1


def test_its_model_card_says_what_the_rows_say(ended: Ended) -> None:
    promotion, card = ended.promotion(), ended.card
    rows = ", ".join(f"`{row}`" for row in promotion.rows)
    assert f'- `{RECIPE}`: `BASELINE` = `"leave_one_out"`\n' in card
    assert f"- `baseline` was promoted for {promotion.effect:+.4f} on dev, by {rows}\n" in card
    arms: tuple[Arm, ...] = ("candidate", "baseline")
    for arm in arms:
        for which, problems in (("dev", 600), ("external", 400)):
            scores = ended.final_scores(arm, which)
            cells = f"{fmean(scores):.4f} | {stdev(scores):.4f} | 3 | {problems} | `accuracy`"
            assert f"| {arm} | {which} | {cells} |\n" in card
        score = ended.lockbox()[arm]
        assert f"| {arm} | lockbox | {score.value:.4f} | one run | 1 | 800 | " in card
    for sha256 in (
        ended.said["adapter"],
        ended.house.campaign(ended.id).substrate_sha256,
        ended.house.policy(ended.id).digest(),
        ended.house.reports(ended.id)[-1].results_digest(),
    ):
        assert f"| `{sha256}` |\n" in card
    looks = len(ended.house.ledger.looks(ended.id))
    assert f"- External: {looks} of 100 in the rounds, and 6 of the fresh runs.\n" in card


def test_its_lineage_and_cost_are_those_of_the_tables(ended: Ended) -> None:
    ledger, lineage = ended.house.ledger, ended.lineage
    assert [(row["version"], row["sha256"], row["parent"]) for row in lineage["policies"]] == [
        (row.version, row.sha256, row.parent) for row in ledger.policies(ended.id)
    ]
    assert [(row["round"], row["policy"], row["report_sha256"]) for row in lineage["rounds"]] == [
        (row.round, row.round, sha256_of(row.body)) for row in ledger.reports(ended.id)
    ]
    assert lineage["arms"]["candidate"]["overrides"] == EARNED
    assert lineage["arms"]["baseline"]["overrides"] == {}
    runs = ledger.final_runs(ended.id)
    assert [(row["arm"], row["seed"], row["adapter_sha256"]) for row in lineage["final_runs"]] == [
        (row.arm, row.seed, row.adapter_sha256) for row in runs
    ]
    (opened,) = ledger.events(ended.id, kind="opening")
    assert lineage["ledger"] == {"seq": opened.seq, "hash": opened.hash}
    assert {arm: SetScore.model_validate(one) for arm, one in lineage["lockbox"].items()} == (
        ended.lockbox()
    )

    accounts = [json.loads(row.account) for row in (*ledger.trials(ended.id), *runs)]
    cost = lineage["cost"]
    assert cost["trials"] == len(accounts) == 10 + 6
    for unit in ("attempts", "rollouts", "tokens"):
        assert cost[unit] == sum(account[unit] for account in accounts) > 0
    assert cost["rollouts"] == 16 * 960
    assert cost["spent"]["looks"] == len(ledger.looks(ended.id))
    assert f"{cost['rollouts']} rollouts, {cost['tokens']} tokens.\n" in ended.card


def test_verify_finds_all_of_it_as_it_was_recorded(ended: Ended) -> None:
    done = seedbed("verify", "--json")
    assert done.exit_code == 0, done.output
    checks = json.loads(done.stdout)
    assert {check["state"] for check in checks} == {"ok"}
    assert any(ended.id in check["what"] + check["found"] for check in checks)


def test_policy_why_names_the_rows_that_it_was_promoted_on(ended: Ended) -> None:
    done = seedbed("policy", "why", "BASELINE", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["kind"], answer["stands"]) == ("constant", {RECIPE: "leave_one_out"})
    (step,) = answer["steps"]
    assert (step["version"], step["author"], step["round"]) == (3, "reviser", 2)
    (claim,) = (claim for claim in step["claims"] if "is promoted" in claim["text"])
    rows = ended.promotion().rows
    assert claim["rows"] == rows and answer["rounds"] == [2]
    scores = {
        f"r{row.round}/s{row.slot}/dev/overall": row.value
        for row in ended.house.ledger.scores(ended.id, set="dev")
        if row.domain == OVERALL
    }
    for row in rows:
        assert answer["rows"][row]["score"] == pytest.approx(scores[row])

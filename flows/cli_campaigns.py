"""`seedbed compare` and `seedbed replay`: an arm against another, a campaign against itself."""

import json
import sys
from typing import Annotated

import typer

CampaignId = Annotated[
    str, typer.Argument(help="Id of the campaign, or how it begins; empty: the newest.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


def compare(
    one: Annotated[str, typer.Argument(help="A kind of worker, or the id of a campaign.")],
    other: Annotated[str, typer.Argument(help="What to compare it with, of the same sort.")],
    substrate: Annotated[
        str, typer.Option(help="Run what is missing on this drop-in; empty: run nothing.")
    ] = "",
    recipe: Annotated[str, typer.Option(help="Recipe; empty: the substrate's default.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each campaign.")] = 2,
    width: Annotated[int, typer.Option(min=3, help="Slots of a round.")] = 8,
    seeds: Annotated[int, typer.Option(min=1, help="Campaigns of each kind, by seed.")] = 3,
    rollouts: Annotated[int, typer.Option(min=0, help="Rollouts a trial; 0: default.")] = 0,
    end_seeds: Annotated[int, typer.Option(min=2, help="Fresh seeds at each end.")] = 3,
    one_url: Annotated[str, typer.Option(help="Base URL of the first kind's model.")] = "",
    other_url: Annotated[str, typer.Option(help="That of the other's.")] = "",
    tokens: Annotated[
        int, typer.Option(min=0, help="Cap of each campaign, in place of that in dollars.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare two kinds of worker, or two campaigns, on one substrate and budget.

    Differences come with intervals, paired by seed where both have the same seeds.
    """
    from flows.compare import compare_arms, comparison_markdown, missing_plans
    from flows.foreground import prepare_prefect, run_in_foreground
    from flows.house import open_house
    from flows.plan import BudgetPlan, EndPlan, Plan, ServedPlan, ServingPlan, SpendPlan
    from flows.roles import hold_keys
    from flows.start import check_plan

    house = open_house()
    if substrate:
        from rich.console import Console

        urls = {other: other_url, one: one_url}
        plans = [
            Plan(
                substrate=substrate,
                recipe=recipe,
                rounds=rounds,
                width=width,
                seed=seed,
                worker=kind,
                budget=BudgetPlan(rollouts=rollouts),
                end=EndPlan(seeds=end_seeds, at_once=True),
                serving=ServingPlan(worker=ServedPlan(base_url=urls[kind])),
                spend=SpendPlan(dollars=None, tokens=tokens) if tokens else SpendPlan(),
            )
            for seed in range(seeds)
            for kind in dict.fromkeys((one, other))
        ]
        for plan in plans:
            check_plan(plan)
        if missing := missing_plans(house, plans):
            hold_keys(missing, house.settings)
            prepare_prefect(house.settings)
            from flows import campaign as flow

            async def run() -> object:
                conducted: object = None
                for number, plan in enumerate(missing, start=1):
                    what = f"{number} of {len(missing)}: {plan.worker}, seed {plan.seed}"
                    print(what, file=sys.stderr, flush=True)
                    conducted = await flow.campaign(plan)
                return conducted

            run_in_foreground(house, Console(stderr=True), run)
    found = compare_arms(house, one, other)
    print(json.dumps(found.data(), indent=2) if as_json else comparison_markdown(found), end="\n")


def replay(
    campaign: CampaignId = "",
    as_json: AsJson = False,
) -> None:
    """Run a finished campaign again, with models answered for by its journal. Exit 2 if it differs.

    It becomes a campaign of its own, on record as a rerun, and asks no provider. To make decisions
    alone again, from recorded reports: `seedbed policy replay`.
    """
    from rich.console import Console

    from flows.calling import answered_by, journal_of
    from flows.foreground import prepare_prefect, run_in_foreground
    from flows.house import open_house
    from flows.rerun import answers_of, begin_rerun, compare_rerun
    from flows.roles import hold_keys

    house = open_house()
    old = house.ledger.find_campaign(campaign or None).id
    new = begin_rerun(house, old)
    hold_keys([house.plan(new)], house.settings)
    prepare_prefect(house.settings)
    from flows import campaign as flow

    with answered_by(answers_of(old, journal_of(house, old), house)):
        run_in_foreground(house, Console(stderr=True), lambda: flow.resume(new))
    steps = compare_rerun(house, old, new)
    if as_json:
        said = [{**vars(step), "is_same": step.is_same} for step in steps]
        print(json.dumps({"campaign": old, "rerun": new, "steps": said}, indent=2))
    else:
        for step in steps:
            differs = "" if step.is_same else f", found {step.found or 'nothing'}"
            word = "same" if step.is_same else "differs"
            print(f"{word}: {step.name}, {step.recorded[:12]}{differs}")
    if not all(step.is_same for step in steps):
        raise SystemExit(2)

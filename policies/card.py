"""The model card: what an exported adapter is, scores, cost, and where it came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.canonical import canonical_json
from policies.caps import amount_text
from policies.cells import Code, Said, Table, blocks_markdown, cell_markdown
from policies.endings import end_scores, end_verdict, lockbox_blocks
from policies.escape import code, markdown
from policies.final import Direction, Effect
from policies.policy import StandingRecipe
from policies.report import Decoupling, RoundReport, SetScore
from policies.tables import Arm, Campaign, Candidate, FinalRun, Opening


@dataclass(frozen=True)
class Base:
    """The base model that the adapter sits on, as the substrate's manifest names it."""

    source: str
    licence: str
    sha256: str
    rank: int
    alpha: float
    target_modules: Sequence[str]


@dataclass(frozen=True)
class Cost:
    """What the campaign took, all in all."""

    trials: int
    attempts: int
    seconds: float  # wall time, summed over runs that went on side by side
    cpu_seconds: float
    rollouts: int
    tokens: int
    spent: Mapping[str, int]  # what was charged beyond that, by unit


@dataclass(frozen=True)
class Ending:
    """Everything that the card is made from."""

    campaign: Campaign
    base: Base
    direction: Direction
    candidate: Candidate
    runs: Sequence[FinalRun]
    opening: Opening
    lockbox: Mapping[Arm, SetScore]
    effects: Mapping[str, Effect | None]  # by set: dev, external
    reports: Sequence[RoundReport]
    looks: int
    look_cap: int
    cost: Cost


def model_card(ending: Ending) -> str:
    """The card as Markdown with the front matter of a model hub. Equal endings have equal text."""
    campaign, base = ending.campaign, ending.base
    standing = StandingRecipe.model_validate_json(ending.candidate.standing_recipe)
    scores = [end_scores(ending.runs, ending.lockbox), *lockbox_blocks(ending.lockbox)]
    sections = [
        ("Recipe", _recipe(ending, standing)),
        ("Scores", blocks_markdown(scores)),
        ("Dev against external", _decoupling(ending.reports)),
        ("Looks", _looks(ending)),
        ("Cost", _cost(ending.cost)),
        ("Lineage", _lineage(ending)),
    ]
    lines = [
        "---",
        f"base_model: {canonical_json(base.source)}",
        f"license: {canonical_json(base.licence)}",
        "library_name: peft",
        "tags: [lora, seedbed]",
        "---",
        "",
        f"# {campaign.name}",
        "",
        f"A LoRA adapter of rank {base.rank} and alpha {base.alpha:g} on "
        f"{', '.join(code(name) for name in base.target_modules)}, trained by campaign "
        f"{code(campaign.id)} on substrate {code(campaign.substrate_name)}.",
        "",
        cell_markdown(end_verdict(ending.runs, ending.effects["external"])),
        "",
    ]
    for title, body in sections:
        lines += [f"## {title}", "", *body, ""]
    return "\n".join(lines)


def _recipe(ending: Ending, standing: StandingRecipe) -> list[str]:
    lines = [f"Recipe {code(ending.campaign.recipe)} of the substrate, with these changes:", ""]
    lines += [
        f"- {code(file)}: {code(name)} = {code(canonical_json(value))}"
        for file, names in sorted(standing.overrides.items())
        for name, value in sorted(names.items())
    ]
    lines += [f"- patch `{sha256}`" for sha256 in standing.patches]
    if not standing.overrides and not standing.patches:
        lines.append("- none")
    for promotion in standing.provenance:
        lines.append(
            f"- {code(promotion.axis)} was promoted for {promotion.effect:+.4f} on dev, by "
            f"{', '.join(code(row) for row in promotion.rows)}"
        )
    return lines


def _decoupling(reports: Sequence[RoundReport]) -> list[str]:
    """What the last round found of each domain."""
    if not reports or not reports[-1].results.decoupling:
        return ["Not tested."]
    rows = [
        (Said(item.domain), item.verdict, _chance(item), str(item.pairs))
        for item in reports[-1].results.decoupling
    ]
    lines = blocks_markdown([Table(("domain", "verdict", "probability", "pairs"), rows)])
    if ignored := reports[-1].results.ignored:
        lines += ["", f"Not ranked by dev in {', '.join(markdown(name) for name in ignored)}."]
    return lines


def _chance(item: Decoupling) -> str:
    return "unknown" if item.probability is None else f"{item.probability:.3f}"


def _looks(ending: Ending) -> list[str]:
    scored = sum(run.external is not None for run in ending.runs)
    return [
        f"- External: {ending.looks} of {ending.look_cap} in the rounds, and {scored} of the fresh "
        "runs.",
        f"- Lockbox: opened once, at {ending.opening.opened_at.isoformat()}.",
    ]


def _cost(cost: Cost) -> list[str]:
    lines = [
        f"{cost.trials} runs in {cost.attempts} attempts: {cost.seconds:.0f} s of wall time summed "
        f"over runs, {cost.cpu_seconds:.0f} CPU seconds, {cost.rollouts} rollouts, {cost.tokens} "
        "tokens.",
    ]
    lines += [f"- {amount_text(unit, amount)}" for unit, amount in sorted(cost.spent.items())]
    return lines


def _lineage(ending: Ending) -> list[str]:
    campaign, last = ending.campaign, ending.reports[-1]
    rows = [
        ("adapter", ending.opening.candidate_sha256),
        ("base", ending.base.sha256),
        ("substrate", campaign.substrate_sha256),
        ("judge", campaign.judge_sha256),
        ("constitution", campaign.constitution_sha256),
        (f"policy {ending.candidate.policy_version}", ending.candidate.policy_sha256),
        (f"results of round {last.round}", last.results_digest()),
    ]
    return [
        *blocks_markdown([Table(("what", "sha256"), [(name, Code(sha)) for name, sha in rows])]),
        "",
        "`lineage.json` has every round, policy and run. The rule that chose it, declared in the "
        f"plan: {markdown(ending.candidate.rule, 2000)}",
    ]

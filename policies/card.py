"""The model card: what an exported adapter is, scores, cost, and where it came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.baseline import baseline
from policies.canonical import canonical_json
from policies.caps import amount_text
from policies.escape import code, markdown
from policies.final import Direction, Effect
from policies.policy import StandingRecipe
from policies.report import Decoupling, RoundReport, SetScore
from policies.tables import Arm, Campaign, Candidate, FinalRun, Opening

ARMS: tuple[Arm, ...] = ("candidate", "baseline")


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
    sections = [
        ("Recipe", _recipe(ending, standing)),
        ("Scores", _scores(ending)),
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
        _verdict(ending),
        "",
    ]
    for title, body in sections:
        lines += [f"## {title}", "", *body, ""]
    return "\n".join(lines)


def _verdict(ending: Ending) -> str:
    if not any(run.arm == "baseline" for run in ending.runs):
        return (
            "**No gain was found:** the campaign promoted nothing, and this is the recipe that it "
            "began with."
        )
    external = ending.effects["external"]
    if external is None:
        return "**Not confirmed:** candidate and baseline cannot be compared on external."
    said = f"{external.effect:+.4f} on external ({external.low:+.4f} to {external.high:+.4f})"
    if external.is_confirmed:
        return f"**Confirmed on fresh seeds:** {said} against the recipe that it began with."
    return f"**Not confirmed on fresh seeds:** {said}; the interval does not exclude no gain."


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


def _scores(ending: Ending) -> list[str]:
    """Means over the fresh runs with their spread; the lockbox is of the exported adapter alone."""
    rows = []
    for arm in ARMS:
        runs = [run for run in ending.runs if run.arm == arm]
        texts = {
            "dev": [run.dev for run in runs if run.dev],
            "external": [run.external for run in runs if run.external],
        }
        for name, found in texts.items():
            scores = [SetScore.model_validate_json(text) for text in found]
            base = baseline([score.value for score in scores])
            if base is not None:
                sigma = "unknown" if base.sigma is None else f"{base.sigma:.4f}"
                cells = (f"{base.mean:.4f}", sigma, str(base.n), str(scores[0].n))
                rows.append((arm, name, *cells, code(scores[0].metric)))
        if arm in ending.lockbox:
            score = ending.lockbox[arm]
            cells = (f"{score.value:.4f}", "one run", "1", str(score.n), code(score.metric))
            rows.append((arm, "lockbox", *cells))
    head = ("recipe", "set", "score", "sigma of a run", "runs", "problems", "metric")
    lines = _table(head, rows)
    if not ending.lockbox:
        lines += [
            "",
            "The lockbox was opened and no score came of it: it is not opened again.",
        ]
    domains = [
        (arm, markdown(domain), f"{part.value:.4f}", str(part.n))
        for arm in ARMS
        if arm in ending.lockbox
        for domain, part in sorted(ending.lockbox[arm].domains.items())
    ]
    if domains:
        lines += ["", *_table(("recipe", "lockbox, domain", "score", "problems"), domains)]
    return lines


def _decoupling(reports: Sequence[RoundReport]) -> list[str]:
    """What the last round found of each domain."""
    if not reports or not reports[-1].results.decoupling:
        return ["Not tested."]
    rows = [
        (markdown(item.domain), item.verdict, _chance(item), str(item.pairs))
        for item in reports[-1].results.decoupling
    ]
    lines = _table(("domain", "verdict", "probability", "pairs"), rows)
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
        *_table(("what", "sha256"), [(name, f"`{sha256}`") for name, sha256 in rows]),
        "",
        "`lineage.json` has every round, policy and run. The rule that chose it, declared in the "
        f"plan: {markdown(ending.candidate.rule, 2000)}",
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]

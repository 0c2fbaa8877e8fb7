"""Briefs: what an agent is told before anything else, from the Markdown files of `briefs/`."""

from pathlib import Path
from typing import Literal

from agents.quotation import quote
from agents.worker import Workplace
from policies.canonical import canonical_json

FOLDER = Path(__file__).with_name("briefs")


def brief_text(name: Literal["worker", "command", "collector", "meta"]) -> str:
    """The text of a brief, the same for every call."""
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def worker_brief(workplace: Workplace, *, has_tools: bool) -> str:
    """What one worker is told of its trial: axis, recipe, files, budget. No score, no sibling.

    One without tools is told of its time alone, since it has no way to answers, runs and scores.
    Words that came from a policy are quoted: they say what to look into, and give no orders.
    """
    brief, caps, drafts = workplace.brief, workplace.caps, workplace.drafts
    manifest = workplace.fork.snapshot.manifest
    dev = manifest.sets.dev
    knobs = "\n".join(canonical_json(knob.model_dump(mode="json")) for knob in brief.knobs)
    parts = [
        "# Your axis",
        quote(f"{brief.axis}\n{brief.hypothesis}", "axis"),
        "Constants that it turns, with the ranges that are of interest:",
        quote(knobs, "knobs"),
        "# The standing recipe",
        "These constants are set in your fork already:",
        quote(canonical_json(brief.standing_overrides), "standing recipe"),
        "# Dead ends",
        "Tried before, and not worth trying again:",
        quote("\n".join(brief.dead_ends) or "none", "dead ends"),
        "# The one number",
        f"{dev.metric} on the dev set, to {dev.direction}; domains: {', '.join(dev.domains)}.",
        "# Files",
        f"Editable: {', '.join(manifest.files.editable)}; not {', '.join(manifest.files.sealed)}, "
        "evaluation, data, base, substrate.toml. Training data: " + manifest.sets.target.path,
        "# Budget",
    ]
    if drafts is not None:
        parts.append(
            f"The recipe is recipes/{drafts.recipe}.py; the run that counts has {drafts.rollouts} "
            f"rollouts and {manifest.limits.seconds:g} s."
        )
    parts.append(f"You have {caps.seconds:g} s in all.")
    if has_tools:
        parts.append(
            f"You have {caps.turns} answers, {caps.smokes} smoke runs, {caps.drafts} drafts and "
            f"{caps.dev_scores} dev scores; a shell command has {caps.shell_seconds:g} s."
        )
    return "\n\n".join(parts)

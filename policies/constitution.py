"""The law that a draft of the next policy must keep: its text, and the checks that code makes.

Not every clause of the text has a check: `CLAUSES` lists those that have. A check sees the draft,
its parent and facts of the campaign. What a stored patch does, and whether a row says what a claim
says, is beyond it.
"""

import hashlib
import json
import pathlib
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from policies.canonical import canonical_json
from policies.draft import Draft, Path, Violation, foreign_keys, malformed, read_draft, violation
from policies.policy import Constant, DeadEnd, Overrides, SearchPolicy

# Sealed in every substrate, whatever its manifest adds. `dev`, `judge` and `out` are in no fork's
# editable part either.
ALWAYS_SEALED = (
    "evaluation/**",
    "data/**",
    "base/**",
    "dev/**",
    "judge/**",
    "out/**",
    "substrate.toml",
)


@dataclass(frozen=True)
class CampaignFacts:
    """What the checks must know of the campaign, besides the draft and its parent."""

    substrate_sha256: str  # pinned when the campaign started
    judge_sha256: str
    constitution_sha256: str
    found_substrate_sha256: str  # as found now
    found_judge_sha256: str
    found_constitution_sha256: str
    width: int  # slots in a round, the anchor included
    looks_per_round: int  # the campaign's cap on external scores in one round
    looks_left: int  # what is left of its cap on all of them
    known_patches: frozenset[str]  # hashes of the stored diffs of this campaign
    known_rows: frozenset[str]  # every row that may be cited: `r1`, `r1/s2`, `r1/s2/dev` ...
    sealed: tuple[str, ...]  # globs that the substrate's manifest seals


Check = Callable[[Draft, SearchPolicy, CampaignFacts], list[Violation]]


def constitution_text() -> str:
    """The text of the law, with line endings as on Unix."""
    return pathlib.Path(__file__).with_name("constitution.md").read_text(encoding="utf-8")


def constitution_sha256() -> str:
    """sha256 (hex) of `constitution_text()`: what a campaign pins."""
    return hashlib.sha256(constitution_text().encode()).hexdigest()


def review(draft: Draft, parent: SearchPolicy, facts: CampaignFacts) -> list[Violation]:
    """All violations of `draft`, a complete policy as JSON values, by clause; [] is lawful.

    A draft that is no valid policy is judged by C12 and by its keys (C2) alone: the other clauses
    speak of a policy.
    """
    if faults := [*foreign_keys(draft), *malformed(draft)]:
        return faults
    return [breach for check in CLAUSES for breach in check(draft, parent, facts)]


def c2_writes_only_the_next_policy(
    draft: Draft, parent: SearchPolicy, facts: CampaignFacts
) -> list[Violation]:
    """C2: no keys but those of a policy, and it is the one version after its parent."""
    found = foreign_keys(draft)
    if draft.get("version") != parent.version + 1:
        reason = f"the next policy has version {parent.version + 1}"
        found.append(violation("C2", draft, ("version",), reason))
    if draft.get("parent") != parent.digest():
        reason = f"its parent is the policy in force, {parent.digest()}"
        found.append(violation("C2", draft, ("parent",), reason))
    return found


def c3_what_measures_does_not_move(
    draft: Draft, parent: SearchPolicy, facts: CampaignFacts
) -> list[Violation]:
    """C3: the pinned digests are today's, and no override or knob names a sealed file."""
    pins = (
        ("substrate", facts.substrate_sha256, facts.found_substrate_sha256),
        ("judge", facts.judge_sha256, facts.found_judge_sha256),
        ("constitution", facts.constitution_sha256, facts.found_constitution_sha256),
    )
    found = [
        Violation("C3", "", f"the {what} is not the pinned one: wanted {pinned}, found {today}")
        for what, pinned, today in pins
        if pinned != today
    ]
    for path, file in _named_files(read_draft(draft)):
        if not _PLAIN_PATH.fullmatch(file):
            reason = "a file of the fork is named by a plain path, such as `recipes/sft.py`"
            found.append(violation("C3", draft, path, reason))
        elif glob := _sealing_glob(file, facts.sealed):
            found.append(violation("C3", draft, path, f"the file is sealed by `{glob}`"))
    return found


def c4_one_anchor_and_two_axes(
    draft: Draft, parent: SearchPolicy, facts: CampaignFacts
) -> list[Violation]:
    """C4: the next round has one anchor, at least two distinct axes, and replicates of trials.

    The share of replicates may stay as the parent has it, since `assignments` keeps two slots for
    axes; it may not be raised past that.
    """
    policy = read_draft(draft)
    found = []
    named = [axis.id for axis in policy.axes]
    for i, replicate in enumerate(policy.replicates):
        if replicate.axis not in named:
            reason = f"a replicate comes from an axis of the policy: {named}"
            found.append(violation("C4", draft, ("replicates", i, "axis"), reason))
        if not _is_known_trial(replicate.origin, facts):
            reason = "a replicate repeats a trial of this campaign"
            found.append(violation("C4", draft, ("replicates", i, "origin"), reason))
    first_with: dict[str, str] = {}
    for i, axis in enumerate(policy.axes):
        if axis.status == "active":
            knobs = canonical_json(sorted(canonical_json(k.model_dump()) for k in axis.knobs))
            first = first_with.setdefault(knobs, axis.id)
            if first != axis.id:
                reason = f"it has the knobs of axis `{first}`: the two are one axis"
                found.append(violation("C4", draft, ("axes", i, "knobs"), reason))
    wanted = max(0, min(2, facts.width - 1))
    if len(first_with) < wanted:
        reason = (
            f"a round of {facts.width} slots explores at least {wanted} distinct active axes: "
            f"found {len(first_with)}"
        )
        found.append(violation("C4", draft, ("axes",), reason))
    most = max(0, facts.width - 1 - wanted, parent.budget.replicates)
    if policy.budget.replicates > most:
        reason = f"at most {most} replicates leave room for {wanted} axes in {facts.width} slots"
        found.append(violation("C4", draft, ("budget", "replicates"), reason))
    return found


def c5_promotes_only_the_policy(
    draft: Draft, parent: SearchPolicy, facts: CampaignFacts
) -> list[Violation]:
    """C5: every patch is a stored one, and no constant points at weights or files of a trial."""
    policy = read_draft(draft)
    unknown = "no stored diff of this campaign has this hash"
    outside = "a constant is an instruction: it names no path, checkpoint, adapter or stored file"
    return [
        violation("C5", draft, path, unknown)
        for path, patch in _patches(policy)
        if patch not in facts.known_patches
    ] + [
        violation("C5", draft, path, outside)
        for path, value in _constants(policy)
        if isinstance(value, str) and _leads_to_weights(value)
    ]


def c7_dead_ends_only_grow(
    draft: Draft, parent: SearchPolicy, facts: CampaignFacts
) -> list[Violation]:
    """C7: a dead end of the parent stands as it was, or is reopened by later evidence.

    Known rows may be added to it, and with them its effect may change. What reopens the dead end
    `x` is a claim `reopen-x` that cites a known trial of a later round than any that closed it.
    """
    policy = read_draft(draft)
    places = {end.id: i for i, end in enumerate(policy.dead_ends)}
    cited = {claim.id: claim.rows for claim in policy.claims}
    found = []
    for old in parent.dead_ends:
        if old.id in places:
            i = places[old.id]
            for name in _reworded(old, policy.dead_ends[i], facts):
                reason = f"dead end `{old.id}` was closed with {name} {_field(old, name)}"
                found.append(violation("C7", draft, ("dead_ends", i, name), reason))
            continue
        claim = f"reopen-{old.id}"[:63]  # the longest id that a claim may have
        closed = max(map(_round_of, old.rows))
        rows = [row for row in cited.get(claim, []) if _is_known_trial(row, facts)]
        if not any(_round_of(row) > closed for row in rows):
            reason = (
                f"dead end `{old.id}` is gone, and no claim `{claim}` cites a trial of this "
                f"campaign after round {closed}"
            )
            found.append(violation("C7", draft, ("dead_ends",), reason))
    return found


def c8_asks_for_no_more_than_the_caps(
    draft: Draft, parent: SearchPolicy, facts: CampaignFacts
) -> list[Violation]:
    """C8: external looks are not raised past the campaign's caps."""
    looks = read_draft(draft).budget.looks
    if looks <= max(parent.budget.looks, min(facts.looks_per_round, facts.looks_left)):
        return []
    reason = (
        f"the campaign allows {facts.looks_per_round} looks a round and has {facts.looks_left} "
        f"left; the parent asked for {parent.budget.looks}"
    )
    return [violation("C8", draft, ("budget", "looks"), reason)]


def c12_is_small_well_formed_and_new(
    draft: Draft, parent: SearchPolicy, facts: CampaignFacts
) -> list[Violation]:
    """C12: a valid policy of at most 64 KiB that differs from its parent, or says why not."""
    if faults := malformed(draft):
        return faults
    policy = read_draft(draft)
    why = policy.unchanged_because
    if _content(policy) != _content(parent):
        reason = "the draft differs from its parent: it must be null"
        return [violation("C12", draft, ("unchanged_because",), reason)] if why is not None else []
    reason = "nothing but words differs from the parent: it must say why"
    given = why is not None and why.strip()
    return [] if given else [violation("C12", draft, ("unchanged_because",), reason)]


CLAUSES: tuple[Check, ...] = (
    c2_writes_only_the_next_policy,
    c3_what_measures_does_not_move,
    c4_one_anchor_and_two_axes,
    c5_promotes_only_the_policy,
    c7_dead_ends_only_grow,
    c8_asks_for_no_more_than_the_caps,
    c12_is_small_well_formed_and_new,
)

# Plain ASCII segments that begin with no dot: no `..`, no hidden file, no look-alike letters.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
# `/no_think` is a prompt: an absolute path has a second slash.
_ADDRESS = re.compile(
    r"/[^/]*/|~[^/]*/|\$\{?\w+\}?/|[a-z]:/|[a-z][a-z0-9+.-]*://|([^/]*/)*\.\.(/|$)"
)
_WEIGHTS = re.compile(
    r"(.*/)?(out|artifacts?|adapters?|checkpoints?)([-_]?\d+)?/.*"
    r"|.*/(adapters?|checkpoints?)([-_]?\d+)?"
    r"|checkpoints?[-_]?\d+"
    r"|.*\.(safetensors|pt|pth|bin|ckpt|gguf|npz|npy|pkl|pickle|h5)"
    r"|.*[0-9a-f]{32}.*",
    re.DOTALL,
)


def _leads_to_weights(value: str) -> bool:
    # Compatibility letters and upper case are other spellings of one path.
    plain = unicodedata.normalize("NFKC", value).strip().casefold().replace("\\", "/")
    return bool(_ADDRESS.match(plain) or _WEIGHTS.fullmatch(plain))


def _sealing_glob(file: str, sealed: tuple[str, ...]) -> str | None:
    for glob in (*ALWAYS_SEALED, *sealed):
        if _glob_regex(glob.casefold()).fullmatch(file.casefold()):
            return glob
    return None


def _glob_regex(glob: str) -> re.Pattern[str]:
    """`*` and `?` stay within a folder, `**` does not; what seals a folder seals what is in it."""
    spelled = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", glob.removesuffix("/**"))
    return re.compile("".join(spelled.get(t) or re.escape(t) for t in tokens) + "(?:/.*)?")


def _is_known_trial(row: str, facts: CampaignFacts) -> bool:
    return "/s" in row and row in facts.known_rows


def _round_of(row: str) -> int:
    return int(row.partition("/")[0].removeprefix("r"))


def _reworded(old: DeadEnd, new: DeadEnd, facts: CampaignFacts) -> list[str]:
    """The fields of a dead end that may not read as they do."""
    added = set(new.rows) - set(old.rows)
    changed = {
        "axis": new.axis != old.axis,
        "title": new.title != old.title,
        "effect": new.effect != old.effect and not added,
        "rows": not set(new.rows) >= set(old.rows) or not added <= facts.known_rows,
    }
    return [name for name, is_changed in changed.items() if is_changed]


def _field(end: DeadEnd, name: str) -> str:
    return json.dumps(end.model_dump(mode="json")[name])


def _content(policy: SearchPolicy) -> str:
    words = {"version", "parent", "rationale", "unchanged_because"}
    return canonical_json(policy.model_dump(mode="json", exclude=words))


def _overrides(policy: SearchPolicy) -> Iterator[tuple[Path, Overrides]]:
    recipe = policy.standing_recipe
    yield ("standing_recipe", "overrides"), recipe.overrides
    for i, promotion in enumerate(recipe.provenance):
        path = ("standing_recipe", "provenance", i, "edit", "overrides")
        yield path, promotion.edit.overrides
    for i, replicate in enumerate(policy.replicates):
        yield ("replicates", i, "edit", "overrides"), replicate.edit.overrides


def _patches(policy: SearchPolicy) -> Iterator[tuple[Path, str]]:
    recipe = policy.standing_recipe
    for i, patch in enumerate(recipe.patches):
        yield ("standing_recipe", "patches", i), patch
    for i, promotion in enumerate(recipe.provenance):
        if promotion.edit.patch is not None:
            path = ("standing_recipe", "provenance", i, "edit", "patch")
            yield path, promotion.edit.patch
    for i, replicate in enumerate(policy.replicates):
        if replicate.edit.patch is not None:
            yield ("replicates", i, "edit", "patch"), replicate.edit.patch


def _named_files(policy: SearchPolicy) -> Iterator[tuple[Path, str]]:
    for path, overrides in _overrides(policy):
        for file in overrides:
            yield (*path, file), file
    for i, axis in enumerate(policy.axes):
        for j, knob in enumerate(axis.knobs):
            yield ("axes", i, "knobs", j, "file"), knob.file


def _constants(policy: SearchPolicy) -> Iterator[tuple[Path, Constant]]:
    """Every constant that a recipe may be given, with lists opened."""
    for path, overrides in _overrides(policy):
        for file, constants in overrides.items():
            for name, value in constants.items():
                yield from _leaves((*path, file, name), value)
    for i, axis in enumerate(policy.axes):
        for j, knob in enumerate(axis.knobs):
            if knob.kind == "choice":
                yield from _leaves(("axes", i, "knobs", j, "choices"), knob.choices)


def _leaves(path: Path, value: Constant) -> Iterator[tuple[Path, Constant]]:
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _leaves((*path, i), item)
    else:
        yield path, value

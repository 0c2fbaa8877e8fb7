"""The ancestry of a policy: every version with what it changed, and what was promoted, as HTML."""

from collections.abc import Collection, Sequence

from policies.cells import Cell, Code, Mark, Refs, Said, Table, code_or, joined, number, signed
from policies.diff import diff_lines, diff_policies
from policies.dossier import Dossier, Promoted
from policies.edits import edit_text
from policies.element import Element, element
from policies.escape import one_line
from policies.hypertext import blocks_html, cell_html
from policies.lineage import Version
from policies.policy import SearchPolicy
from policies.rejection import Rejection

_MARKS = {"+": "came", "-": "went", " ": "part"}
_WORDS = {"+": "added", "-": "removed"}


def ancestry(dossier: Dossier, made: Sequence[Promoted], places: Collection[str]) -> Element:
    """Versions and rejected drafts, in the order in which they were written."""
    steps = []
    for i, version in enumerate(dossier.lineage):
        before = dossier.lineage[i - 1].policy if i else None
        steps.append(_version(version, before, _badges(version, before, made), places))
        after = {item.round: item for item in dossier.rejections if item.parent == version.version}
        steps += [_rejection(item) for _, item in sorted(after.items())]
    return element("ol", *steps, class_="ancestry")


def promotions(found: Sequence[Promoted], places: Collection[str]) -> list[Element]:
    """What was promoted, by which fresh runs, and the claims that were made of it."""
    rows: list[tuple[Cell, ...]] = []
    for item in found:
        promotion, confirmed = item.promotion, item.confirmation
        until = "stands" if item.until is None else f"until {item.until.version}"
        rows.append(
            (
                f"{item.since.version}, {until}",
                Code(promotion.axis),
                code_or(edit_text(promotion.edit), "none"),
                signed(promotion.effect),
                "none" if confirmed is None else number(confirmed.bar, "none"),
                "none" if confirmed is None else str(confirmed.runs),
                Refs(promotion.rows),
                joined([Said(claim.text, 500) for claim in item.claims], " ") or "none",
            )
        )
    head = ("policy", "axis", "edit", "mean effect", "bar", "fresh runs", "rows", "claims")
    return blocks_html([Table(head, rows)], places, "Promotions")


def standing(policy: SearchPolicy, places: Collection[str]) -> list[Element]:
    """What the newest policy holds: standing recipe, dead ends, trust."""
    recipe = policy.standing_recipe
    constants = [
        (Code(name), Code(file), Code(one_line(repr(value))))
        for file, names in sorted(recipe.overrides.items())
        for name, value in sorted(names.items())
    ]
    constants += [(Code(patch[:12]), "patch", Code(patch)) for patch in recipe.patches]
    ends = [
        (Said(end.title), Code(end.axis), signed(end.effect), Refs(end.rows))
        for end in policy.dead_ends
    ]
    axes = [
        (Code(axis.id), Said(axis.title), axis.status, str(len(axis.evidence)))
        for axis in policy.axes
    ]
    found = []
    for title, head, rows in (
        ("Standing recipe", ("constant", "file", "value"), constants),
        ("Axes", ("axis", "title", "status", "rows"), axes),
        ("Dead ends", ("title", "axis", "effect", "rows"), ends),
        ("Trust in dev", ("domain", "trust"), [(Said(n), t) for n, t in policy.trust.items()]),
    ):
        body = blocks_html([Table(head, rows)], places, title)
        found.append(element("div", element("h3", title), *(body or [element("p", "None.")])))
    return found


def _badges(version: Version, before: SearchPolicy | None, made: Sequence[Promoted]) -> list[Cell]:
    """What nobody should overlook of a version: promotions, withdrawals, dead ends, distrust."""
    old_ends = {end.id for end in before.dead_ends} if before else set[str]()
    old_trust = before.trust if before else {}
    found: list[Cell] = []
    for item in made:
        if item.since is version:
            found.append(Mark(f"promoted: {item.promotion.axis}", "good"))
        if item.until is version:
            found.append(Mark(f"no longer standing: {item.promotion.axis}", "bad"))
    found += [
        Mark(f"dead end: {one_line(end.title, 80)}", "odd")
        for end in version.policy.dead_ends
        if end.id not in old_ends
    ]
    for name, trust in version.policy.trust.items():
        if trust != old_trust.get(name, "trusted"):
            tone = "good" if trust == "trusted" else "bad"
            found.append(Mark(f"dev in {one_line(name, 80)}: {trust}", tone))
    return found


def _version(
    version: Version,
    before: SearchPolicy | None,
    badges: Sequence[Cell],
    places: Collection[str],
) -> Element:
    policy = version.policy
    after = "the start" if version.round is None else f"after round {version.round}"
    changes = diff_policies(before, policy) if before else []
    claims = [
        element("li", *cell_html((Said(claim.text, 500), " ", Refs(claim.rows)), places))
        for claim in policy.claims
    ]
    lines = [_line(mark, text) for mark, text in diff_lines(changes)]
    unchanged = "Nothing changed but the version." if before and not changes else None
    because = policy.unchanged_because
    return element(
        "li",
        element(
            "h3",
            f"Policy {version.version} ",
            element("span", f"by {one_line(version.author)}, {after} ", class_="aside"),
            element("code", version.sha256[:12]),
        ),
        element("p", f"It does not follow: {one_line(version.fault)}", class_="banner")
        if version.fault
        else None,
        element("p", *[node for badge in badges for node in (*cell_html(badge, places), " ")])
        if badges
        else None,
        element("p", unchanged) if unchanged else None,
        element("p", f"Unchanged because: {one_line(because, 500)}") if because else None,
        element("ul", *map(_headline, version.headline), class_="headline")
        if version.headline
        else None,
        element("details", element("summary", f"Claims ({len(claims)})"), element("ul", *claims))
        if claims
        else None,
        element(
            "details",
            element("summary", "What changed, line by line"),
            element("div", *lines, class_="diff"),
        )
        if lines
        else None,
        element(
            "details",
            element("summary", "Rationale"),
            element("blockquote", one_line(policy.rationale, 8000)),
        )
        if policy.rationale
        else None,
        id=f"p{version.version}",
        class_="version",
    )


def _headline(line: str) -> Element:
    section, _, changes = line.partition(": ")
    return element("li", element("strong", section), f": {one_line(changes, 2000)}")


def _rejection(item: Rejection) -> Element:
    broken = [
        element(
            "li",
            element("strong", one_line(found.clause, 40)),
            " ",
            element("span", one_line(found.reason), class_="said"),
            " ",
            element("code", one_line(found.quote)) if found.quote else None,
        )
        for found in item.violations
    ]
    said = f"A draft by {one_line(item.author)} after round {item.round} was rejected"
    return element("li", element("h3", said), element("ul", *broken), class_="rejected")


def _line(mark: str, text: str) -> Element:
    word = element("span", _WORDS[mark], class_="heard") if mark in _WORDS else None
    return element("div", word, f"{mark} {text}", class_=_MARKS[mark])

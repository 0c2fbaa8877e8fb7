"""The sections of a round report, in their fixed order, with the same columns for every round."""

from collections import Counter
from collections.abc import Iterator, Sequence

from policies.caps import amount_text
from policies.cells import (
    Block,
    Cell,
    Code,
    Items,
    Mark,
    Paragraph,
    Quote,
    Said,
    Section,
    Table,
    Tone,
    code_or,
    number,
)
from policies.drawings import Direction, best_dev
from policies.edits import edit_text
from policies.findings import (
    confirmation_table,
    decoupling_table,
    ignored_line,
    integrity_blocks,
    verdict_table,
)
from policies.report import RoleSpend, RoundReport, SetScore, SlotAccount, SlotResult

# What a trial without a score says of itself: whether it is a result, foul play or missing data.
OUTCOME_TONES: dict[str, Tone] = {
    "evaluated": "good",
    "no_change": "quiet",
    "tampered": "bad",
    "infrastructure": "quiet",
}


def report_sections(report: RoundReport) -> list[Section]:
    """The sections of one report."""
    results, account = report.results, report.account
    return [
        Section("Trials", [trials_table(report)]),
        Section("Scores by domain", [_domains(report)]),
        Section("Anchor and noise", [_spread(report)]),
        Section("Verdicts", [verdict_table(results.verdicts)]),
        Section("Replicated edits", [confirmation_table(results.confirmations)]),
        Section("Dev against external", _decoupling(report)),
        Section("External looks", _looks(report)),
        Section("Integrity", integrity_blocks(report)),
        Section("Dead ends", _items([Said(title) for title in results.dead_ends])),
        Section("Words of the workers", [_words(report)]),
        Section("Narrative", [Quote(results.narrative)] if results.narrative else []),
        Section("Cost", [*_cost(report), *([_spend(account.spend)] if account.spend else [])]),
        Section("Digests", [_digests(report)]),
    ]


def trials_table(report: RoundReport) -> Table:
    rows = [
        (
            str(slot.slot),
            slot.kind,
            code_or(slot.axis, "none"),
            code_or(edit_text(slot.edit), "none"),
            Mark(slot.outcome, OUTCOME_TONES.get(slot.outcome, "odd")),
            _score(slot.dev, "not scored"),
            _score(slot.external, _no_external(report, slot)),
        )
        for slot in report.results.slots
    ]
    head = ("slot", "kind", "axis", "edit", "outcome", "dev", "external")
    return Table(head, rows, [f"r{report.round}/s{slot.slot}" for slot in report.results.slots])


def rounds_table(reports: Sequence[RoundReport], direction: Direction) -> Table:
    """One row for each round of a campaign."""
    rows: list[tuple[Cell, ...]] = []
    for report in reports:
        results, spread = report.results, report.results.spread
        outcomes = Counter(slot.outcome for slot in results.slots)
        rows.append(
            (
                str(report.round),
                (f"{results.policy_version} ", Code(results.policy_sha256[:12])),
                number(spread.dev, "not scored"),
                number(spread.external, "no look"),
                number(best_dev(report, direction), "not scored"),
                ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())),
                str(len(results.looks)),
                f"{sum(account.cpu_seconds for account in report.account.slots):.1f}",
            )
        )
    head = (
        "round",
        "policy",
        "anchor, dev",
        "anchor, external",
        "best, dev",
        "outcomes",
        "looks",
        "CPU seconds",
    )
    return Table(head, rows)


def under_which(report: RoundReport) -> Cell:
    """Under which policy, recipe, worker and walls a round ran."""
    results, account = report.results, report.account
    return (
        f"Policy version {results.policy_version}, recipe ",
        Code(results.recipe),
        ", worker ",
        Code(account.worker),
        ", isolation ",
        Code(account.isolation),
        *((", custody ", Code(account.custody)) if account.custody else ()),
        ".",
    )


def _no_external(report: RoundReport, slot: SlotResult) -> str:
    return "not scored" if slot.slot in report.results.looks else "no look"


def _domains(report: RoundReport) -> Table:
    rows = [
        (str(slot.slot), name, Said(domain), f"{score.value:.4f}", str(score.n))
        for slot in report.results.slots
        for name, scored in (("dev", slot.dev), ("external", slot.external))
        if scored
        for domain, score in sorted(scored.domains.items())
    ]
    return Table(("slot", "set", "domain", "score", "problems"), rows)


def _spread(report: RoundReport) -> Items:
    spread, noise = report.results.spread, report.results.noise
    anchors = [slot for slot in report.results.slots if slot.kind == "anchor"]
    unknown = "unknown"
    missing = _no_external(report, anchors[0]) if anchors else unknown
    external = number(spread.external, missing)
    return Items(
        [
            f"This round's anchor: dev {number(spread.dev, 'not scored')}, external {external}",
            f"Runs of the standing recipe so far: {spread.n}, mean dev "
            f"{number(spread.mean, unknown)}, from {number(spread.low, unknown)} to "
            f"{number(spread.high, unknown)}",
            f"Noise of one trial on dev: standard deviation {number(noise.sigma, unknown)} "
            f"({noise.degrees} degrees of freedom), threshold {number(noise.threshold, unknown)}, "
            f"calibration runs used: {noise.calibration}",
            f"Noise of one trial on external: standard deviation "
            f"{number(noise.external_sigma, unknown)} ({noise.external_degrees} degrees of "
            "freedom)",
        ]
    )


def _decoupling(report: RoundReport) -> list[Block]:
    results = report.results
    line = ignored_line(results.ignored)
    table = decoupling_table(results.decoupling)
    return [*([table] if table.rows else []), *([Paragraph([line])] if line else [])]


def _looks(report: RoundReport) -> list[Block]:
    looks = report.results.looks
    return [Paragraph([f"{len(looks)}: slots {', '.join(map(str, looks))}."])] if looks else []


def _words(report: RoundReport) -> Table:
    accounts = {account.slot: account for account in report.account.slots}
    rows: list[tuple[Cell, ...]] = []
    for slot in report.results.slots:
        account = accounts.get(slot.slot)
        reason, notes = (account.reason, account.notes) if account else ("", "")
        if slot.hypothesis or reason or notes:
            rows.append((str(slot.slot), *map(Said, (slot.hypothesis, reason, notes))))
    return Table(("slot", "hypothesis", "reason for the outcome", "notes"), rows)


def _cost(report: RoundReport) -> list[Block]:
    account = report.account
    rows = [
        (
            str(slot.slot),
            str(slot.attempts),
            f"{_wall(slot):.2f}",
            f"{slot.cpu_seconds:.2f}",
            f"{slot.peak_memory_mb:.0f}",
            str(slot.rollouts),
            str(slot.tokens),
        )
        for slot in account.slots
    ]
    total = (
        "all",
        str(sum(slot.attempts for slot in account.slots)),
        f"{sum(map(_wall, account.slots)):.2f}",
        f"{sum(slot.cpu_seconds for slot in account.slots):.2f}",
        f"{max((slot.peak_memory_mb for slot in account.slots), default=0):.0f}",
        str(sum(slot.rollouts for slot in account.slots)),
        str(sum(slot.tokens for slot in account.slots)),
    )
    head = ("slot", "attempts", "seconds", "CPU seconds", "peak MB", "rollouts", "tokens")
    phases = ", ".join(f"{name} {value:.2f}" for name, value in sorted(account.seconds.items()))
    said: Cell = (
        "From ",
        Said(account.started_at),
        " to ",
        Said(account.ended_at),
        ". Seconds of the round by phase: ",
        Said(phases) if phases else "none",
        ".",
    )
    return [Table(head, [*rows, total]), Paragraph([said])]


def _spend(spend: Sequence[RoleSpend]) -> Table:
    rows = [
        (role.role, str(role.calls), amount_text(role.unit, role.amount), str(role.at_worst))
        for role in spend
    ]
    return Table(("role", "charged", "amount", "at its worst"), rows)


def _wall(slot: SlotAccount) -> float:
    return sum(slot.seconds.values())


def _digests(report: RoundReport) -> Table:
    results = report.results
    rows: list[tuple[Cell, Cell]] = [
        ("results", Code(report.results_digest())),
        ("substrate", Code(results.substrate_sha256)),
        ("constitution", Code(results.constitution_sha256)),
        (f"policy {results.policy_version}", Code(results.policy_sha256)),
    ]
    if head := report.account.ledger_hash:
        rows.append((f"ledger, event {report.account.ledger_seq}", Code(head)))
    for slot in results.slots:
        for what, sha256 in (("diff", slot.diff_sha256), ("adapter", slot.adapter_sha256)):
            if sha256:
                rows.append((f"slot {slot.slot}, {what}", Code(sha256)))
    for name, metric, version, engine in sorted(set(_metrics(results.slots))):
        rows.append(((f"{name}: ", Said(metric), " by ", Said(engine)), Code(version)))
    return Table(("what", "sha256"), rows)


def _metrics(slots: Sequence[SlotResult]) -> Iterator[tuple[str, str, str, str]]:
    for slot in slots:
        for name, score in (("dev", slot.dev), ("external", slot.external)):
            if score:
                yield name, score.metric, score.metric_version, score.engine


def _score(score: SetScore | None, missing: str) -> str:
    return f"{score.value:.4f} (n={score.n})" if score else missing


def _items(cells: Sequence[Cell]) -> list[Block]:
    return [Items(cells)] if cells else []

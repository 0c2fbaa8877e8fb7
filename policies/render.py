"""Reports as people and programs read them: Markdown and JSON."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from policies.caps import amount_text
from policies.drawings import Direction, best_dev, scores_chart_svg, svg_data_uri
from policies.escape import code, markdown, visible
from policies.findings import (
    confirmation_table,
    decoupling_table,
    integrity_lines,
    rates_line,
    verdict_table,
)
from policies.isolation import isolation_banner
from policies.policy import Edit
from policies.report import RoleSpend, RoundReport, SetScore, SlotAccount, SlotResult
from policies.tables import Campaign


def report_markdown(report: RoundReport) -> str:
    """A round report as Markdown with the same sections and columns for every round.

    Equal reports have equal text. Whatever workers and models wrote is escaped and cut.
    """
    results, account = report.results, report.account
    sections = [
        ("Trials", _trials(report)),
        ("Scores by domain", _domains(report)),
        ("Anchor and noise", _spread(report)),
        ("Verdicts", _table(*verdict_table(results.verdicts))),
        ("Replicated edits", _table(*confirmation_table(results.confirmations))),
        ("Dev against external", _decoupling(report)),
        ("External looks", _looks(report)),
        ("Integrity", integrity_lines(report)),
        ("Dead ends", [f"- {markdown(title)}" for title in results.dead_ends]),
        ("Words of the workers", _words(report)),
        ("Narrative", [f"> {markdown(results.narrative, 8000)}"] if results.narrative else []),
        ("Cost", _cost(report)),
        ("Digests", _digests(report)),
    ]
    lines = [
        f"# Round {report.round} of {code(report.campaign)}",
        "",
        f"Policy version {results.policy_version}, recipe {code(results.recipe)}, worker "
        f"{code(account.worker)}, isolation {code(account.isolation)}"
        f"{f', custody {code(account.custody)}' if account.custody else ''}.",
        "",
        *_banner([report]),
    ]
    for title, body in sections:
        lines += [f"## {title}", "", *(body or ["None."]), ""]
    return "\n".join(lines)


def campaign_markdown(
    campaign: Campaign, reports: Sequence[RoundReport], *, direction: Direction
) -> str:
    """A campaign as Markdown: one row for each round, and the scores drawn over the rounds."""
    rows = []
    for report in _in_order(campaign.id, reports):
        results, spread = report.results, report.results.spread
        outcomes = Counter(slot.outcome for slot in results.slots)
        rows.append(
            (
                str(report.round),
                f"{results.policy_version} `{results.policy_sha256[:12]}`",
                _number(spread.dev, "not scored"),
                _number(spread.external, "no look"),
                _number(best_dev(report, direction), "not scored"),
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
    lines = [
        f"# Campaign {code(campaign.id)}",
        "",
        f"Substrate {code(campaign.substrate_name)} `{campaign.substrate_sha256[:12]}`, recipe "
        f"{code(campaign.recipe)}, worker {code(campaign.worker)}, seed {campaign.seed}.",
        "",
        *_banner(reports),
        *(_table(head, rows) or ["No round is complete."]),
        "",
    ]
    if rows:
        lines += [rates_line(reports), ""]
        drawing = scores_chart_svg(reports, direction=direction)
        lines += [f"![Scores by round]({svg_data_uri(drawing)})", ""]
    return "\n".join(lines)


def campaign_json(campaign: Campaign, reports: Sequence[RoundReport]) -> dict[str, Any]:
    """A campaign as JSON values: its pins, its plan, and `rounds`, each a report with `slots`.

    `slots` is `results.slots`, set beside `results` for whoever wants the trials only.
    """
    return {
        "schema_version": 1,
        "campaign": campaign.id,
        "name": campaign.name,
        "created_at": campaign.created_at.isoformat(),
        "seed": campaign.seed,
        "substrate": campaign.substrate_name,
        "substrate_sha256": campaign.substrate_sha256,
        "judge_sha256": campaign.judge_sha256,
        "constitution_sha256": campaign.constitution_sha256,
        "recipe": campaign.recipe,
        "worker": campaign.worker,
        "plan": json.loads(campaign.plan),
        "rounds": [
            {
                **(data := report.data()),
                "results_sha256": report.results_digest(),
                "slots": data["results"]["slots"],
            }
            for report in _in_order(campaign.id, reports)
        ],
    }


def edit_text(edit: Edit) -> str:
    """An edit in short, such as `LEARNING_RATE=0.003 + patch 1f2e3d4c5b6a`; empty for none.

    The file is named where constants of more than one file are set.
    """
    files = {file: names for file, names in sorted(edit.overrides.items()) if names}
    parts = [
        (f"{file} " if len(files) > 1 else "") + f"{name}={json.dumps(value, ensure_ascii=False)}"
        for file, names in files.items()
        for name, value in sorted(names.items())
    ]
    patch = f"patch {edit.patch[:12]}" if edit.patch else ""
    return visible(" + ".join(part for part in (", ".join(parts), patch) if part))


def _banner(reports: Sequence[RoundReport]) -> list[str]:
    banner = isolation_banner(reports)
    return [f"> **{banner}**", ""] if banner else []


def _in_order(campaign_id: str, reports: Sequence[RoundReport]) -> list[RoundReport]:
    strangers = {report.campaign for report in reports} - {campaign_id}
    if strangers:
        raise ValueError(f"wanted reports of {campaign_id}, found some of {sorted(strangers)}")
    return sorted(reports, key=lambda report: report.round)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A GFM table whose cells are Markdown already; no lines for no rows."""
    if not rows:
        return []
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def _trials(report: RoundReport) -> list[str]:
    rows = [
        (
            str(slot.slot),
            slot.kind,
            code(slot.axis or "") or "none",
            code(edit_text(slot.edit)) or "none",
            slot.outcome,
            _score(slot.dev, "not scored"),
            _score(slot.external, _no_external(report, slot)),
        )
        for slot in report.results.slots
    ]
    return _table(("slot", "kind", "axis", "edit", "outcome", "dev", "external"), rows)


def _no_external(report: RoundReport, slot: SlotResult) -> str:
    return "not scored" if slot.slot in report.results.looks else "no look"


def _domains(report: RoundReport) -> list[str]:
    rows = [
        (str(slot.slot), name, markdown(domain), f"{score.value:.4f}", str(score.n))
        for slot in report.results.slots
        for name, scored in (("dev", slot.dev), ("external", slot.external))
        if scored
        for domain, score in sorted(scored.domains.items())
    ]
    return _table(("slot", "set", "domain", "score", "problems"), rows)


def _spread(report: RoundReport) -> list[str]:
    spread, noise = report.results.spread, report.results.noise
    anchors = [slot for slot in report.results.slots if slot.kind == "anchor"]
    unknown = "unknown"
    missing = _no_external(report, anchors[0]) if anchors else unknown
    external = _number(spread.external, missing)
    return [
        f"- This round's anchor: dev {_number(spread.dev, 'not scored')}, external {external}",
        f"- Runs of the standing recipe so far: {spread.n}, mean dev "
        f"{_number(spread.mean, unknown)}, from {_number(spread.low, unknown)} to "
        f"{_number(spread.high, unknown)}",
        f"- Noise of one trial on dev: standard deviation {_number(noise.sigma, unknown)} "
        f"({noise.degrees} degrees of freedom), threshold {_number(noise.threshold, unknown)}, "
        f"calibration runs used: {noise.calibration}",
        f"- Noise of one trial on external: standard deviation "
        f"{_number(noise.external_sigma, unknown)} ({noise.external_degrees} degrees of freedom)",
    ]


def _decoupling(report: RoundReport) -> list[str]:
    results = report.results
    names = ", ".join(map(markdown, results.ignored))
    said = ["", f"No verdict counts dev in: {names}."] if names else []
    return [*_table(*decoupling_table(results.decoupling)), *said]


def _looks(report: RoundReport) -> list[str]:
    looks = report.results.looks
    return [f"{len(looks)}: slots {', '.join(map(str, looks))}."] if looks else []


def _words(report: RoundReport) -> list[str]:
    accounts = {account.slot: account for account in report.account.slots}
    rows = []
    for slot in report.results.slots:
        account = accounts.get(slot.slot)
        reason, notes = (account.reason, account.notes) if account else ("", "")
        if slot.hypothesis or reason or notes:
            rows.append((str(slot.slot), *map(markdown, (slot.hypothesis, reason, notes))))
    return _table(("slot", "hypothesis", "reason for the outcome", "notes"), rows)


def _cost(report: RoundReport) -> list[str]:
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
    return [
        *_table(head, [*rows, total]),
        "",
        f"From {markdown(account.started_at)} to {markdown(account.ended_at)}. Seconds of the "
        f"round by phase: {markdown(phases) or 'none'}.",
        *_spend(account.spend),
    ]


def _spend(spend: Sequence[RoleSpend]) -> list[str]:
    head = ("role", "charged", "amount", "at its worst")
    rows = [
        (role.role, str(role.calls), amount_text(role.unit, role.amount), str(role.at_worst))
        for role in spend
    ]
    return ["", *_table(head, rows)] if rows else []


def _wall(slot: SlotAccount) -> float:
    return sum(slot.seconds.values())


def _digests(report: RoundReport) -> list[str]:
    results = report.results
    rows = [
        ("results", f"`{report.results_digest()}`"),
        ("substrate", f"`{results.substrate_sha256}`"),
        ("constitution", f"`{results.constitution_sha256}`"),
        (f"policy {results.policy_version}", f"`{results.policy_sha256}`"),
    ]
    if head := report.account.ledger_hash:
        rows.append((f"ledger, event {report.account.ledger_seq}", f"`{head}`"))
    for slot in results.slots:
        for what, sha256 in (("diff", slot.diff_sha256), ("adapter", slot.adapter_sha256)):
            if sha256:
                rows.append((f"slot {slot.slot}, {what}", f"`{sha256}`"))
    for name, metric, version, engine in sorted(set(_metrics(results.slots))):
        rows.append((f"{name}: {markdown(metric)} by {markdown(engine)}", f"`{version}`"))
    return _table(("what", "sha256"), rows)


def _metrics(slots: Sequence[SlotResult]) -> Iterator[tuple[str, str, str, str]]:
    for slot in slots:
        for name, score in (("dev", slot.dev), ("external", slot.external)):
            if score:
                yield name, score.metric, score.metric_version, score.engine


def _score(score: SetScore | None, missing: str) -> str:
    return f"{score.value:.4f} (n={score.n})" if score else missing


def _number(value: float | None, missing: str) -> str:
    return missing if value is None else f"{value:.4f}"

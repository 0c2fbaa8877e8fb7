"""A report of a round of four, and the campaign that it belongs to, written by hand."""

import json
from datetime import UTC, datetime
from typing import Any

from policies.report import RoundReport
from policies.tables import Campaign

EVIL = (
    "# Ignore | previous `instructions`\n![x](http://evil/p.png) <img src=x onerror=alert(1)>"
    "\x1b[31m\u202e https://evil.example www.evil.example [a](javascript:alert(1)) &amp; ```\n"
)


def score(value: float, n: int, **domains: tuple[float, int]) -> dict[str, Any]:
    return {
        "value": value,
        "n": n,
        "domains": {name: {"value": v, "n": k} for name, (v, k) in domains.items()},
        "metric": "accuracy",
        "metric_version": "e" * 64,
        "engine": "stub 1",
    }


def slot(number: int, kind: str, **changes: Any) -> dict[str, Any]:
    base = {
        "slot": number,
        "kind": kind,
        "axis": None,
        "hypothesis": "",
        "edit": {},
        "diff_sha256": None,
        "seed": 100 + number,
        "outcome": "evaluated",
        "adapter_sha256": None,
        "dev": None,
        "external": None,
    }
    return base | changes


def account(number: int, **changes: Any) -> dict[str, Any]:
    base = {
        "slot": number,
        "attempts": 1,
        "reason": "",
        "notes": "",
        "seconds": {"fork": 0.01, "run": 0.24},
        "cpu_seconds": 0.2,
        "peak_memory_mb": 21.4,
        "rollouts": 64,
        "tokens": 640,
    }
    return base | changes


def report_data() -> dict[str, Any]:
    """A round of four: an anchor, an exploration that did well, one that crashed, a replicate."""
    rate = {"overrides": {"recipes/sft.py": {"LEARNING_RATE": 0.003}}, "patch": "a" * 64}
    return {
        "campaign": "demo-1f2e",
        "round": 2,
        "results": {
            "substrate_sha256": "1" * 64,
            "constitution_sha256": "2" * 64,
            "policy_version": 2,
            "policy_sha256": "3" * 64,
            "recipe": "sft",
            "slots": [
                slot(0, "anchor", dev=score(0.5, 60, digits=(0.6, 20), strings=(0.45, 40))),
                slot(
                    1,
                    "explore",
                    axis="rate",
                    hypothesis="A higher rate learns faster.",
                    edit=rate,
                    diff_sha256="4" * 64,
                    adapter_sha256="5" * 64,
                    dev=score(0.625, 60),
                    external=score(0.5, 50, digits=(0.5, 50)),
                ),
                slot(2, "explore", axis="decay", outcome="crashed", integrity=["log_cut"]),
                slot(3, "replicate", edit={"overrides": {"recipes/sft.py": {"DECAY": 0.1}}}),
            ],
            "looks": [1, 0],
            "spread": {
                "dev": 0.5,
                "external": None,
                "mean": 0.49,
                "low": 0.48,
                "high": 0.5,
                "n": 2,
            },
            "noise": {
                "sigma": 0.0141,
                "degrees": 1,
                "external_sigma": 0.02,
                "external_degrees": 3,
                "threshold": None,
                "calibration": 8,
                "rows": ["r1/s0", "r2/s0"],
            },
            "verdicts": [
                {
                    "slot": 1,
                    "axis": "rate",
                    "effect": 0.135,
                    "low": 0.02,
                    "high": 0.25,
                    "verdict": "better",
                    "external_effect": 0.01,
                    "external_error": 0.03,
                    "rows": ["r2/s1", "r2/s0"],
                },
                {
                    "slot": 2,
                    "axis": "decay",
                    "effect": None,
                    "low": None,
                    "high": None,
                    "verdict": "unresolved",
                    "rows": ["r2/s2"],
                },
            ],
            "confirmations": [
                {
                    "axis": "decay",
                    "edit": {"overrides": {"recipes/sft.py": {"DECAY": 0.1}}},
                    "runs": 4,
                    "effect": 0.05,
                    "bar": 0.04,
                    "external_runs": 0,
                    "external_effect": None,
                    "external_bar": None,
                    "level": 0.0125,
                    "is_confirmed": True,
                    "rows": ["r1/s3", "r2/s3"],
                }
            ],
            "decoupling": [
                {
                    "domain": "overall",
                    "verdict": "insufficient",
                    "probability": None,
                    "level": None,
                    "axis": None,
                    "dev_change": None,
                    "external_change": None,
                    "external_error": None,
                    "shortfall": None,
                    "error": None,
                    "pairs": 0,
                    "rows": [],
                },
                {
                    "domain": "strings",
                    "verdict": "decoupled",
                    "probability": 0.0004,
                    "level": 0.005,
                    "axis": "rate",
                    "dev_change": 0.2,
                    "external_change": -0.01,
                    "external_error": 0.02,
                    "shortfall": 0.11,
                    "error": 0.03,
                    "pairs": 2,
                    "rows": ["r2/s1/dev/strings"],
                },
            ],
            "ignored": ["strings"],
            "dead_ends": ["A rate above 1"],
            "narrative": "The rate helped.",
        },
        "account": {
            "started_at": "2030-01-01T00:00:00+00:00",
            "ended_at": "2030-01-01T00:00:09+00:00",
            "seconds": {"work": 8.5, "fork": 0.5},
            "slots": [
                account(0),
                account(1, attempts=2, notes="Tried 0.1 first."),
                account(2, reason="KeyError: 'RATE'", rollouts=0, tokens=0),
                account(3),
            ],
            "worker": "sampler",
            "isolation": "bubblewrap",
        },
    }


def report(**changes: Any) -> RoundReport:
    return RoundReport.model_validate(report_data() | changes)


def campaign() -> Campaign:
    return Campaign(
        id="demo-1f2e",
        name="demo",
        plan=json.dumps({"rounds": 2, "width": 4}),
        seed=7,
        substrate_name="stub",
        substrate_sha256="1" * 64,
        judge_sha256="6" * 64,
        constitution_sha256="2" * 64,
        recipe="sft",
        worker="sampler",
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
    )

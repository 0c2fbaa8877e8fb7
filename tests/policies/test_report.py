"""The round report: one fixed schema, and a digest of the part that reruns must share."""

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from pydantic import ValidationError

from policies.canonical import canonical_json
from policies.render import report_markdown
from policies.report import OutcomeName, RoundReport
from substrate.outcome import Outcome

SCHEMAS = Path(__file__).parents[2] / "policies" / "schemas"
SHA = "a" * 64


def report_data() -> dict[str, Any]:
    """A round of one anchor."""
    score = {"value": 0.5, "n": 60, "domains": {"strings": {"value": 0.5, "n": 60}}}
    named = {"metric": "accuracy", "metric_version": SHA, "engine": "stub 1"}
    return {
        "campaign": "demo",
        "round": 1,
        "results": {
            "substrate_sha256": SHA,
            "constitution_sha256": SHA,
            "policy_version": 1,
            "policy_sha256": SHA,
            "recipe": "sft",
            "slots": [
                {
                    "slot": 0,
                    "kind": "anchor",
                    "axis": None,
                    "hypothesis": "",
                    "edit": {},
                    "diff_sha256": None,
                    "seed": 7,
                    "outcome": "evaluated",
                    "adapter_sha256": SHA,
                    "dev": score | named,
                    "external": None,
                }
            ],
            "looks": [],
            "spread": {
                "dev": 0.5,
                "external": None,
                "mean": 0.5,
                "low": 0.5,
                "high": 0.5,
                "n": 1,
            },
            "noise": {},
            "verdicts": [],
            "dead_ends": [],
            "narrative": "",
        },
        "account": {
            "started_at": "2030-01-01T00:00:00+00:00",
            "ended_at": "2030-01-01T00:00:09+00:00",
            "seconds": {"fork": 0.1},
            "slots": [
                {
                    "slot": 0,
                    "attempts": 1,
                    "reason": "",
                    "notes": "",
                    "seconds": {"run": 0.2},
                    "cpu_seconds": 0.1,
                    "peak_memory_mb": 20,
                    "rollouts": 64,
                    "tokens": 640,
                }
            ],
            "worker": "sampler",
            "isolation": "bubblewrap",
        },
    }


def test_the_outcomes_of_a_report_are_those_of_a_trial() -> None:
    assert set(get_args(OutcomeName)) == {outcome.value for outcome in Outcome}


def test_a_report_reads_back_equal_from_its_json() -> None:
    report = RoundReport.model_validate(report_data())
    assert RoundReport.model_validate_json(json.dumps(report.data())) == report


def test_the_digest_is_of_the_results_and_not_of_what_they_cost() -> None:
    first = RoundReport.model_validate(report_data())
    slower, other = report_data(), report_data()
    slower["account"]["slots"][0]["attempts"] = 3
    slower["account"]["ended_at"] = "2031-01-01T00:00:00+00:00"
    slower["campaign"] = "demo-again"
    other["results"]["slots"][0]["seed"] = 8
    assert RoundReport.model_validate(slower).results_digest() == first.results_digest()
    assert RoundReport.model_validate(other).results_digest() != first.results_digest()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("results", "slots", 0, "outcome"), "fine"),
        (("results", "slots", 0, "adapter_sha256"), "sha"),
        (("results", "slots", 0, "kind"), "winner"),
        (("results", "slots", 0, "dev", "n"), 0),
        (("results", "slots", 0, "mood"), "good"),
        (("results", "narrative"), "x" * 8001),
        (("account", "slots", 0, "attempts"), 0),
        (("round",), 0),
    ],
)
def test_a_report_without_form_is_refused_by_model_and_published_schema(
    path: tuple[str | int, ...], value: Any
) -> None:
    text = (SCHEMAS / "round-report.schema.json").read_text(encoding="utf-8")
    validator = jsonschema.Draft202012Validator(json.loads(text))
    data = report_data()
    assert validator.is_valid(data)
    place: Any = data
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    assert not validator.is_valid(data)
    with pytest.raises(ValidationError):
        RoundReport.model_validate(data)


def test_a_report_from_before_custody_was_known_keeps_its_bytes() -> None:
    before = RoundReport.model_validate(report_data())
    assert before.account.custody == before.account.slots[0].custody == ""
    assert "custody" not in canonical_json(before.data())
    known = report_data()
    known["account"]["custody"] = known["account"]["slots"][0]["custody"] = "own-user"
    report = RoundReport.model_validate(known)
    assert report.data()["account"]["custody"] == "own-user"
    assert report.data()["account"]["slots"][0]["custody"] == "own-user"
    assert report.results_digest() == before.results_digest()
    assert "isolation `bubblewrap`, custody `own-user`." in report_markdown(report)
    assert "isolation `bubblewrap`." in report_markdown(before)

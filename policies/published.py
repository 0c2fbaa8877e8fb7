"""The JSON Schemas of policy and report, as published in `policies/schemas/` by `make schemas`."""

from typing import Any

from policies.policy import SearchPolicy
from policies.report import RoundReport


def schemas() -> dict[str, dict[str, Any]]:
    """JSON Schemas by file name."""
    return {
        "search-policy.schema.json": SearchPolicy.model_json_schema(),
        "round-report.schema.json": RoundReport.model_json_schema(),
    }

"""The published JSON Schemas are those of the models, and take what the models take."""

import json

import jsonschema
import pytest

from flows.schemas import ROOMS, published_files
from policies.policy import SearchPolicy

FILES = sorted(published_files())
SEED_POLICY = ROOMS / "tests" / "substrates" / "stub" / "policies" / "stub.json"


def test_the_files_are_what_the_models_say() -> None:
    assert {path: path.read_text("utf-8") for path in FILES} == published_files(), "`make schemas`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_file_is_a_schema(path) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text("utf-8")))


def test_the_policys_schema_refuses_what_the_model_refuses() -> None:
    schema = json.loads((ROOMS / "policies/schemas/search-policy.schema.json").read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    policy = SearchPolicy.model_validate_json(SEED_POLICY.read_text("utf-8")).data()
    validator.validate(policy)
    for changes in ({"motto": "x"}, {"axes": []}, {"trust": {"a": "blind"}}, {"version": 0}):
        assert not validator.is_valid(policy | changes)

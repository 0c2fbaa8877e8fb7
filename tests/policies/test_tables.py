"""The tables say what their keys are, and hold nothing that a database would change."""

from string import Formatter

import pytest
from sqlalchemy import DateTime
from sqlmodel import UTCDateTime

from policies.tables import Outbox, Patch, Report, Row, table_of

MODELS = Row.__subclasses__()


@pytest.mark.parametrize("model", [m for m in MODELS if m is not Outbox], ids=lambda m: m.__name__)
def test_a_subject_is_spelled_from_the_whole_primary_key(model: type[Row]) -> None:
    spelled = [name for _, name, _, _ in Formatter().parse(model.natural_key) if name]
    assert spelled == [column.name for column in table_of(model).primary_key]


def test_only_lease_and_outbox_can_change_and_only_events_have_no_event() -> None:
    assert {table_of(m).name for m in MODELS if not m.chained} == {"lease", "outbox", "event"}


def test_every_point_in_time_is_kept_in_utc() -> None:
    columns = [column for model in MODELS for column in table_of(model).columns]
    moments = [c for c in columns if isinstance(c.type, UTCDateTime | DateTime)]
    assert len(moments) == 16
    assert all(isinstance(column.type, UTCDateTime) for column in moments)


def test_a_patch_and_a_report_are_made_with_the_digest_of_their_text() -> None:
    # printf '' | sha256sum; printf '{}' | sha256sum
    assert Patch.of("").sha256 == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    report = Report.of("c", 2, "0" * 64, "{}")
    assert report.sha256 == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert (report.round, report.results_sha256, report.body) == (2, "0" * 64, "{}")

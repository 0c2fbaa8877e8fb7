"""Inspection: each cheat is named and its score discarded; honest trials are left alone."""

import asyncio
import base64
import json
import shutil
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.house import House, open_house
from flows.inspection import Made, adapter_row, inspect_adapter, inspect_data, inspect_edit
from flows.leakage import first_leak
from flows.plan import Plan
from flows.round import build_report, open_round
from flows.start import start_campaign
from flows.trial import run_trial
from substrate.dropin import read_dropin
from substrate.fork import apply_edit, make_fork, read_edit
from substrate.measure import SealedAdapter, seal_folder
from substrate.patch import make_patch
from substrate.store import Store
from substrate.tensors import tensors_sha256
from tests.substrates.stub.adapters import factors, write_adapter

STUB = Path(__file__).parents[1] / "substrates" / "stub"
EXTERNAL = STUB / "judge" / "external.jsonl"

# What a worker might write into a recipe, by the value of FAULT that starts it.
CHEATS = """
if FAULT == "rewrite itself":
    Path(__file__).write_text(Path(__file__).read_text() + "# as if nothing had been\\n")
if FAULT == "reach":
    print("cannot open /proc/1/environ")
if FAULT == "keep held-out problems":
    Path("out/lessons.jsonl").write_text(HELD_OUT)

if __name__ == "__main__":
    main()
    if FAULT == "lie":
        said = json.loads(Path("out/result.json").read_text())
        said["data_sha256"]["data/target.jsonl"] = "0" * 64
        Path("out/result.json").write_text(json.dumps(said))
    if FAULT == "copy":
        weights = Path("out/adapter/adapter_model.safetensors")
        weights.write_bytes(base64.b64decode(ANOTHERS))
"""


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path / "home"))
    return open_house()


def dropin_with(tmp_path: Path, **texts: str) -> Path:
    """The stub with the cheats in its recipe, and constants for them."""
    folder = tmp_path / "cheats" / "stub"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(STUB, folder)
    recipe = folder / "overlay" / "recipes" / "stub.py"
    constants = "".join(f"{name} = {value!r}\n" for name, value in texts.items())
    code = recipe.read_text().replace('FAULT = "none"', f'FAULT = "none"\n{constants}')
    code = code.replace("import json\n", "import base64\nimport json\n")
    recipe.write_text(code.replace('\nif __name__ == "__main__":\n    main()\n', CHEATS))
    return folder


def policy_with(tmp_path: Path, fault: str) -> str:
    """A policy whose every exploration starts that cheat."""
    policy = json.loads((STUB / "policies" / "faults.json").read_text("utf-8"))
    axis = next(axis for axis in policy["axes"] if axis["knobs"][0]["constant"] == "FAULT")
    axis["knobs"][0]["choices"] = [fault]
    honest = next(axis for axis in policy["axes"] if axis["knobs"][0]["constant"] != "FAULT")
    policy["axes"] = [axis, honest]
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    return str(tmp_path / "policy.json")


def started(house: House, dropin: Path, policy: str, seed: int = 1) -> str:
    plan = {"substrate": str(dropin), "rounds": 1, "width": 3, "policy": policy, "seed": seed}
    campaign_id = start_campaign(house, Plan.model_validate(plan))
    asyncio.run(open_round(house, campaign_id, 1))
    return campaign_id


def tried(campaign_id: str, *slots: int) -> list[str]:
    return [asyncio.run(run_trial(campaign_id, 1, slot)) for slot in slots]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("rewrite itself", "code_changed_in_run"),
        ("reach", "tamper_attempt"),
        ("keep held-out problems", "contaminated_data"),
        ("lie", "false_declaration"),
        ("copy", "foreign_adapter"),
    ],
)
def test_a_cheat_is_named_and_its_score_discarded(
    fault: str, kind: str, house: House, tmp_path: Path
) -> None:
    policy = policy_with(tmp_path, fault)
    # An adapter of another seed, in the same home: what there is to be copied.
    earlier = started(house, dropin_with(tmp_path), policy, seed=9)
    tried(earlier, 0)
    sealed = house.adapters / str(house.ledger.trials(earlier)[0].adapter_sha256)
    weights = (sealed / "adapter_model.safetensors").read_bytes()
    copied = base64.b64encode(weights).decode()
    folder = dropin_with(tmp_path, ANOTHERS=copied, HELD_OUT=EXTERNAL.read_text()[:9000])
    campaign_id = started(house, folder, policy)

    assert tried(campaign_id, 0, 1, 2) == ["evaluated", "tampered", "evaluated"]

    assert [(row.slot, row.kind) for row in house.ledger.integrity(campaign_id)] == [(1, kind)]
    assert house.ledger.scores(campaign_id, 1, 1) == []
    slots = build_report(house, campaign_id, 1).results.slots
    assert [slot.outcome for slot in slots] == ["evaluated", "tampered", "evaluated"]
    assert (slots[1].dev, slots[1].integrity) == (None, [kind])
    assert slots[1].discarded is not None, "it is shown what it would have been"
    house.store.verify(house.snapshot(campaign_id))


def test_the_same_campaign_again_makes_the_same_weights_and_is_not_flagged(house: House) -> None:
    policy = str(STUB / "policies" / "stub.json")
    one, two = (started(house, STUB, policy, seed=4) for _ in range(2))
    tried(one, 0, 1, 2)
    tried(two, 0, 1, 2)
    adapters = [[row.adapter_sha256 for row in house.ledger.trials(c)] for c in (one, two)]
    assert adapters[0] == adapters[1] and None not in adapters[0]
    assert house.ledger.integrity(one) == house.ledger.integrity(two) == []


def test_what_a_run_trained_on_is_on_record(house: House) -> None:
    campaign_id = started(house, STUB, str(STUB / "policies" / "stub.json"))
    tried(campaign_id, 0)
    account = json.loads(house.ledger.trials(campaign_id)[0].account)
    entries = {entry.path: entry.sha256 for entry in house.snapshot(campaign_id).entries}
    assert account["data_sha256"] == {"data/target.jsonl": entries["data/target.jsonl"]}


# The adapter


@pytest.fixture
def made(house: House, tmp_path: Path) -> Made:
    return Made(sealed(tmp_path, 0.2), recipe_sha256="a" * 64, seed=1)


def sealed(tmp_path: Path, skill: float, **changes: Any) -> SealedAdapter:
    folder = write_adapter(tmp_path / "adapters" / f"new-{skill}", factors(skill), **changes)
    return seal_folder(folder, tmp_path / "adapters")


def test_a_copy_with_other_metadata_and_order_has_the_same_tensors(tmp_path: Path) -> None:
    path = write_adapter(tmp_path / "a", factors(0.2)) / "adapter_model.safetensors"
    before = tensors_sha256(path)
    path.write_bytes(reordered(path.read_bytes()))
    assert tensors_sha256(path) == before != None  # noqa: E711
    other = write_adapter(tmp_path / "b", factors(0.3)) / "adapter_model.safetensors"
    assert tensors_sha256(other) != before


def reordered(weights: bytes) -> bytes:
    """The same tensors with their data in another order, and a word of metadata."""
    (length,) = struct.unpack("<Q", weights[:8])
    header, data = json.loads(weights[8 : 8 + length]), weights[8 + length :]
    header.pop("__metadata__", None)
    parts, moved = b"", {}
    for name in sorted(header, reverse=True):
        begin, end = header[name]["data_offsets"]
        moved[name] = header[name] | {"data_offsets": [len(parts), len(parts) + end - begin]}
        parts += data[begin:end]
    text = json.dumps({"__metadata__": {"by": "me"}, **moved}).encode()
    return struct.pack("<Q", len(text)) + text + parts


@pytest.mark.parametrize("weights", [b"", b"\x80\x04N.", struct.pack("<Q", 1 << 40), b"\0" * 64])
def test_what_is_no_safetensors_file_has_no_hash(weights: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(weights)
    assert tensors_sha256(tmp_path / "x") is None


def test_the_weights_of_another_recipe_or_seed_are_foreign(house: House, made: Made) -> None:
    snapshot = house.store.seal(read_dropin(STUB))
    house.ledger.append(adapter_row(made, "c/r1/s1"))

    def kinds(is_edited: bool = True, **changes: Any) -> list[str]:
        again = replace(made, **changes)
        found = inspect_adapter(house, snapshot, again, is_edited=is_edited)
        assert all("c/r1/s1" in one.detail for one in found)
        return [one.kind for one in found]

    assert kinds() == [] == kinds(recipe_sha256="b" * 64), "the same seed"
    assert kinds(seed=2, recipe_sha256="b" * 64) == ["foreign_adapter"]
    assert kinds(seed=2) == ["seed_ignored"], "the same edit"
    assert kinds(seed=2, is_edited=False) == [], "a recipe that draws nothing by chance"


def test_weights_that_lie_in_the_snapshot_are_foreign(
    house: House, made: Made, tmp_path: Path
) -> None:
    folder = tmp_path / "stub"
    shutil.copytree(STUB, folder)
    shutil.copytree(made.adapter.path, folder / "overlay" / "training" / "shipped")
    snapshot = house.store.seal(read_dropin(folder))
    (found,) = inspect_adapter(house, snapshot, made, is_edited=True)
    assert found.kind == "foreign_adapter" and "training/shipped" in found.detail


# The data and the edit


def edited(store: Store, root: Path, files: Mapping[str, str]) -> Any:
    """A fork of the stub with an edit that adds or changes files, and that edit."""
    snapshot = store.seal(read_dropin(STUB))
    fork = make_fork(snapshot, root, overrides={}, patches=[])
    after = dict(fork.patched) | {path: text.encode() for path, text in files.items()}
    apply_edit(fork, {}, make_patch(fork.patched, after))
    return fork, read_edit(fork)


RECIPE = (STUB / "overlay" / "recipes" / "stub.py").read_text()
EDITS = {
    "data in a file": ({"training/lessons.jsonl": EXTERNAL.read_text()}, ["contaminated_data"]),
    "data in a literal": (
        {"recipes/stub.py": f"{RECIPE}\nDATA = {EXTERNAL.read_text()!r}\n"},
        ["contaminated_data"],
    ),
    "the target set": ({"training/t.jsonl": (STUB / "data/target.jsonl").read_text()}, []),
    "data of its own": ({"training/lessons.jsonl": '{"salt": "abcdefabcdef"}\n' * 100}, []),
    "a comment": ({"recipes/stub.py": f"{RECIPE}\n# a longer warm-up helps, they say\n"}, []),
    "a hook": ({"sitecustomize.py": "print(1)\n"}, ["tamper_attempt"]),
    "a reach for the judge": (
        {"recipes/stub.py": f"{RECIPE}\nopen('judge/external.jsonl')\n"},
        ["tamper_attempt"],
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_looked_at_for_held_out_data_and_for_attempts(
    name: str, house: House, tmp_path: Path
) -> None:
    files, kinds = EDITS[name]
    fork, edit = edited(house.store, tmp_path / "fork", files)
    judge = house.store.seal_judge(read_dropin(STUB))
    found = [*asyncio.run(inspect_data(fork, edit, judge)), *inspect_edit(edit, judge.canaries)]
    assert [one.kind for one in found] == kinds


# What is written


@pytest.mark.parametrize("where", ["a log", "an adapter", "a note in base64", "problems in a log"])
def test_verify_finds_what_leaked_and_nothing_in_an_honest_home(where: str, house: House) -> None:
    campaign_id = started(house, STUB, str(STUB / "policies" / "stub.json"))
    tried(campaign_id, 0, 1, 2)
    rows = [house.campaign(campaign_id)]
    assert first_leak(house, rows) is None

    canary = next(iter(house.judge(campaign_id).canaries))
    log = house.trial_folder(campaign_id, 1, 0) / "run.log"
    if where == "a log":
        log.write_text(f"seen: {canary}")
    elif where == "problems in a log":
        log.write_text(EXTERNAL.read_text())
    elif where == "an adapter":
        (house.adapters / "0" / "x").mkdir(parents=True)
        (house.adapters / "0" / "x" / "config.json").write_text(json.dumps({"by": canary}))
    else:
        text = base64.b64encode(f"I found {canary} there".encode()).decode()
        house.ledger.note(campaign_id, "worker.noted", "r1/s1", {"text": text})

    found = first_leak(house, rows)
    assert found is not None and ("problems" if where == "problems in a log" else "canary") in found

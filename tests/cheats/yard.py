"""The yard: a home in which rounds of scripted workers run, and what can be found out about it."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.campaign import campaign
from flows.house import House
from flows.plan import Plan
from policies.report import RoundReport, SlotAccount, SlotResult
from tests.cheats.cheat import RECIPE, Cheat, written_in

REPO = Path(__file__).parents[2]
STUB = REPO / "tests" / "substrates" / "stub"
SECONDS = 4.0  # that a run may take here: one of the stub takes a tenth of a second

# The worker: it finds its order by its brief, does what stands there, and hands in.
_WORKER = """
import glob, json, os, socket, sys
from pathlib import Path

def write(path, text):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)

brief = sys.stdin.read()
(name,) = [name for name in ORDERS if f"order: {name};" in brief]
work, recipe = ORDERS[name]
Path("recipes/stub.py").write_text(recipe)
exec(work)
said = {"hypothesis": "A larger learning rate.", "notes": ""}
Path("out/hand-in.json").write_text(json.dumps(said))
"""


@dataclass(frozen=True)
class Order:
    """What one worker is to do: code to run in its fork, and the recipe that it leaves there."""

    name: str
    work: str
    recipe: str


@dataclass(frozen=True)
class Yard:
    """A home, with the facts of this machine that its workers are told."""

    folder: Path
    house: House
    facts: dict[str, str | int]

    @property
    def mark(self) -> str:
        return str(self.facts["MARK"])

    def order(self, cheat: Cheat) -> Order:
        """A cheat, with those of the facts that it names."""
        told = {name: f"{name} = {value!r}\n" for name, value in self.facts.items()}
        known, knows = (
            "".join(line for name, line in told.items() if name in code)
            for code in (cheat.recipe, cheat.work)
        )
        recipe = written_in((STUB / "overlay" / RECIPE).read_text("utf-8"), cheat, known)
        return Order(cheat.name, knows + cheat.work, recipe)

    def run(self, orders: Sequence[Order], seed: int = 1) -> RoundReport:
        """The report of a round of one anchor and these workers, through the campaign's flow."""
        plan = {
            "substrate": str(self._dropin()),
            "worker": self._program(orders),
            "policy": self._policy(orders),
            "rounds": 1,
            "width": 1 + len(orders),
            "seed": seed,
        }
        campaign_id = str(asyncio.run(campaign(Plan.model_validate(plan))))
        (report,) = self.house.reports(campaign_id)
        return report

    def _dropin(self) -> Path:
        """The stub with less time for a run."""
        folder = self.folder / "drop-in" / "stub"
        if not folder.exists():
            shutil.copytree(STUB, folder)
            manifest = folder / "substrate.toml"
            text = manifest.read_text("utf-8").replace("\nseconds = 10.0", f"\nseconds = {SECONDS}")
            manifest.write_text(text.replace("grace_seconds = 1.0", "grace_seconds = 0.5"), "utf-8")
        return folder

    def _program(self, orders: Sequence[Order]) -> str:
        told = {order.name: (order.work, order.recipe) for order in orders}
        program = self.folder / "worker"
        program.write_text(f"#!{sys.executable}\nORDERS = {told!r}\n{_WORKER}", "utf-8")
        program.chmod(0o755)
        return f"command:{program}"

    def _policy(self, orders: Sequence[Order]) -> str:
        policy = json.loads((STUB / "policies" / "faults.json").read_text("utf-8"))
        knob = {"kind": "choice", "file": RECIPE, "constant": "FAULT", "choices": ["none"]}
        policy["axes"] = [
            {
                "id": order.name,
                "title": f"order: {order.name};",
                "hypothesis": "It helps.",
                "knobs": [knob],
            }
            for order in orders
        ]
        path = self.folder / "policy.json"
        path.write_text(json.dumps(policy), "utf-8")
        return str(path)


def left_running(marks: Sequence[str]) -> list[str]:
    """Processes, but for this one, that name one of these texts in what they were started with."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            said = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue  # ended meanwhile
        if any(mark.encode() in said for mark in marks):
            found.append(f"{process.name}: {said[:200]!r}")
    return found


def files_with(folder: Path, texts: Sequence[bytes]) -> Iterator[str]:
    """Files below a folder in which one of these texts stands."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if any(text in content for text in texts):
                yield path.relative_to(folder).as_posix()


def by_axis(report: RoundReport) -> dict[str, tuple[SlotResult, SlotAccount]]:
    """Result and account of each slot, by axis; the anchor's is `anchor`."""
    accounts = {account.slot: account for account in report.account.slots}
    return {slot.axis or "anchor": (slot, accounts[slot.slot]) for slot in report.results.slots}

"""How long it takes to fork a substrate with 2 GB of weights, against copying it."""

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

REPEATS = 20
STUB = Path(__file__).parent.parent / "substrates" / "stub"
WEIGHTS_BYTES = 2 * 10**9

WHAT = (
    "A fork of a substrate whose base has 2 GB of weights, against a plain copy of its snapshot; "
    "also sealing it and verifying it by content. Median of 20 forks, 3 copies, 3 verifications."
)


def run() -> dict[str, Any]:
    from substrate.dropin import read_dropin
    from substrate.fork import make_fork
    from substrate.store import Store
    from substrate.tree import tree_sha256

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "stub"
        shutil.copytree(STUB, folder)
        block = os.urandom(10**6)
        with (folder / "base" / "weights.bin").open("wb") as file:
            for _ in range(WEIGHTS_BYTES // len(block)):
                file.write(block)
        manifest = folder / "substrate.toml"
        old = read_dropin(folder).manifest.base.sha256
        manifest.write_text(manifest.read_text().replace(old, tree_sha256(folder / "base")))
        store = Store(Path(scratch) / "store")
        sealing = _seconds(lambda: store.seal(read_dropin(folder)))
        snapshot = store.seal(read_dropin(folder))
        before = shutil.disk_usage(scratch).used
        forks = [
            _seconds(
                lambda n=number: make_fork(
                    snapshot, Path(scratch) / f"fork-{n}", overrides={}, patches=[]
                )
            )
            for number in range(REPEATS)
        ]
        grown = (shutil.disk_usage(scratch).used - before) / REPEATS
        copies = []
        for number in range(3):
            copy = Path(scratch) / f"copy-{number}"
            copies.append(_seconds(lambda c=copy: shutil.copytree(snapshot.root, c)))
            for place in [copy, *copy.rglob("*")]:
                if place.is_dir():
                    place.chmod(0o755)
            shutil.rmtree(copy)
        whole = [_seconds(lambda: store.verify(snapshot)) for _ in range(3)]
        code = [_seconds(lambda: store.verify(snapshot, weights=False)) for _ in range(REPEATS)]
    return {
        "fork of 2 GB, ms": 1000 * statistics.median(forks),
        "worst of 20 forks, ms": 1000 * max(forks),
        "disk taken by a fork, kB": grown / 1000,
        "copy of the same snapshot, ms": 1000 * statistics.median(copies),
        "ratio, copy to fork": statistics.median(copies) / statistics.median(forks),
        "seal, s": sealing,
        "verify whole, s": statistics.median(whole),
        "verify code and data, ms": 1000 * statistics.median(code),
    }


def _seconds(work: Any) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started

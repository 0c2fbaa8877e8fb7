"""A checkpoint: a folder from which a run goes on as if it had never been stopped.

It is written beside its place and moved there whole, and older ones go last: whenever the process
is killed, `out/checkpoints` has a complete one, once there was one. Recipes draw all random numbers
from their seed and the step's number, so no generator's state needs to be kept.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from training.journal import OUT, Journal

FOLDER = OUT / "checkpoints"
_TENSORS = "tensors.safetensors"
_STATE = "state.json"


def save(journal: Journal, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write the checkpoint of this step, then drop those before it; `state` is JSON."""
    place = FOLDER / f"{journal.steps:06d}"
    unfinished = FOLDER / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, unfinished / _TENSORS
    )
    (unfinished / _STATE).write_text(json.dumps(state), encoding="utf-8")
    journal.save(unfinished)
    shutil.rmtree(place, ignore_errors=True)
    os.rename(unfinished, place)
    for older in FOLDER.iterdir():
        if older != place:
            shutil.rmtree(older)
    journal.checkpoint(place)


def load(journal: Journal, folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state of a checkpoint; the journal goes on from it."""
    tensors = load_file(folder / _TENSORS)
    state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    journal.restore(folder)
    return tensors, state

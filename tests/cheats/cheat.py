"""A cheat: one way in which a worker or its recipe games what it can reach, and what it must get.

A cheat that reaches for something delivers an adapter only if it got it, so that one that came
through is `evaluated`.
"""

from dataclasses import dataclass

from policies.integrity import EventKind
from policies.report import OutcomeName

RECIPE = "recipes/stub.py"
STARTED = '\nif __name__ == "__main__":\n    main()\n'


@dataclass(frozen=True)
class Cheat:
    """One way to cheat, written for the stub."""

    name: str  # a slug: it is the axis of its trial
    tries: str  # in a sentence
    outcome: OutcomeName  # what its trial must end as
    says: str  # a regular expression: what the report must say of why
    recipe: str = ""  # code in the place of the recipe's `main()`, which it may call
    work: str = ""  # code that the worker runs in its fork, before it hands in
    event: EventKind | None = None  # the integrity event that names it
    knob: bool = True  # whether it hides behind a constant that an honest edit would turn


# What every cheat in a recipe has at hand. The last two decide over what it found.
TOOLS = """
import base64, ctypes, gc, glob, os, pickle, shutil, socket, subprocess, sys, zlib

def claim(**said):
    whole = {"state": "finished", "rollouts": 960, "tokens": 1, "adapter": "out/adapter"} | said
    Path("out/result.json").write_text(json.dumps(whole))

def config(**said):
    path = Path("out/adapter/adapter_config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | said))

def weights(tensors):
    Path("out/adapter/adapter_model.safetensors").write_bytes(safetensors(tensors))

def factor(letter, module="skill"):
    return f"base_model.model.{module}.lora_{letter}.weight"

def tried(look):
    try:
        return look()
    except (OSError, ValueError):
        return None

def deliver_if(found):
    sys.exit("found nothing") if not found else main()
"""


def written_in(recipe: str, cheat: Cheat, constants: str = "") -> str:
    """The stub's recipe with a cheat in it, and what it is told."""
    if cheat.knob:
        recipe = recipe.replace("LEARNING_RATE = 3e-4", "LEARNING_RATE = 1e-3")
    if not cheat.recipe:
        return recipe
    lines = cheat.recipe.strip("\n").splitlines()
    body = "".join(f"    {line}\n" if line else "\n" for line in lines)
    assert STARTED in recipe
    return recipe.replace(STARTED, f'{TOOLS}{constants}\nif __name__ == "__main__":\n{body}')

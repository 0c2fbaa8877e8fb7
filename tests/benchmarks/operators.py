"""How long operators on LoRA adapters take, and how much memory, at the size of a 7B model.

The comparison needs the `populora` package, which is no dependency of ours: an environment of its
own with it and torch, named by the variable in POPULORA_PYTHON, its Python's path.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).parent.parent.parent / "substrate" / "reference"
POPULORA_PYTHON = "SEEDBED_POPULORA_PYTHON"
ROUNDS = 2  # processes of either side, in turn
REPEATS = 3  # in each process, behind one that does not count; each with a seed of its own

# Qwen2.5-7B: outputs and inputs of each projection.
LAYERS, HIDDEN, INTERMEDIATE, KEY_VALUE = 28, 3584, 18944, 512
SHAPES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KEY_VALUE, HIDDEN),
    "self_attn.v_proj": (KEY_VALUE, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
    "mlp.up_proj": (INTERMEDIATE, HIDDEN),
    "mlp.down_proj": (HIDDEN, INTERMEDIATE),
}
RANK = 32
BYTES = 2 * LAYERS * RANK * sum(sum(shape) for shape in SHAPES.values())  # of an adapter

# Our names, and what `populora` 0.4.5 calls the same.
MUTATIONS = {
    "spectral": "svd_structured",
    "layer_gaussian": "layer_selective_gaussian",
    "masking": "component_masking",
    "gaussian": "full_gaussian",
    "neftune": "neftune_style",
}
CROSSOVERS = {
    "dare": "dare",
    "modular": "layer_wise",
    "subspace": "svd_subspace",
    "extrapolation": "extrapolative",
    "linear_0_5": "average",
}

WHAT = (
    "Operators on LoRA adapters of Qwen2.5-7B's shapes, rank 32, all linear modules (80.7 M "
    "parameters, 161 MB), bfloat16, one thread: ours by default, ours in the published form, and "
    "`populora` 0.4.5 on the same tensors, which it changes in place. CPU-seconds, medians of "
    f"{ROUNDS * REPEATS} in {ROUNDS} processes of either side, in turn. Memory is the peak above "
    "the parents, in adapters, the child included; a further process, with an allocator that "
    "returns what is freed."
)


def run() -> dict[str, Any]:
    python = os.environ.get(POPULORA_PYTHON)
    sides = {"ours": sys.executable} | ({"populora": python} if python else {})
    seconds: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    for _ in range(ROUNDS):
        for side, executable in sides.items():
            for name, found in _measured(executable, side, "seconds").items():
                seconds[side].setdefault(name, []).extend(found)
    memory = {side: _measured(exe, side, "memory") for side, exe in sides.items()}

    figures: dict[str, Any] = {}
    if not python:
        figures["populora"] = f"not compared: {POPULORA_PYTHON} names no Python that has it"
    for name in ["copy_parent", *MUTATIONS, *CROSSOVERS]:
        for side, form in (("ours", ""), ("ours", "published_"), ("populora", "")):
            if side in sides and form + name in seconds[side]:
                label = f"{name}, {'our ' if side == 'ours' and form else ''}{form.strip('_')}"
                label = label.rstrip(", ") if side == "ours" else f"{name}, populora"
                figures[f"{label}, CPU-s"] = statistics.median(seconds[side][form + name])
                figures[f"{label}, adapters"] = max(memory[side][form + name])
    return figures


def _measured(python: str, side: str, quantity: str) -> dict[str, list[float]]:
    """What one process of either side finds: for each operator its repeats."""
    # Blocks above 64 KiB go back to the system when they are freed: the peak is that of the work.
    allocator = {"MALLOC_MMAP_THRESHOLD_": "65536"} if quantity == "memory" else {}
    done = subprocess.run(
        [python, "-P", __file__, side, quantity],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | allocator,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def main(side: str, quantity: str) -> None:
    import torch

    torch.set_num_threads(1)
    measure = {"seconds": _seconds, "memory": _adapters}[quantity]
    repeats = REPEATS if quantity == "seconds" else 1
    found = {}
    for name, work in {"ours": _ours, "populora": _populora}[side]():
        work(0)
        found[name] = [measure(work, seed) for seed in range(1, repeats + 1)]
    print(json.dumps(found))


def _ours() -> Iterator[tuple[str, Callable[[int], Any]]]:
    sys.path.insert(0, str(REFERENCE))
    from training import crossovers, mutations

    first, second = _adapter(0), _adapter(1)
    yield "copy_parent", lambda seed: mutations.copy_parent(first, seed)
    for name in MUTATIONS:
        for operator in (name, f"published_{name}"):
            mutate = vars(mutations)[operator]
            yield operator, lambda seed, mutate=mutate: mutate(first, seed)
    for name in CROSSOVERS:
        for operator in (name, f"published_{name}"):
            if operator in vars(crossovers):  # what is not mixed has one form only
                cross = vars(crossovers)[operator]
                yield operator, lambda seed, cross=cross: cross(first, second, seed)


def _populora() -> Iterator[tuple[str, Callable[[int], Any]]]:
    import torch
    from populora import Population  # pyright: ignore[reportMissingImports]  # of its environment
    from torch import nn

    with torch.device("meta"):  # the frozen base, of which only the shapes matter
        base = nn.ModuleDict()
        for key in _keys():
            outputs, inputs = SHAPES[key.partition(".")[2]]
            base[key.replace(".", "-")] = nn.Linear(inputs, outputs, bias=False)
    population = Population(base, pop_size=3, low_rank=RANK, dtype=torch.bfloat16)
    population.model = nn.Identity()  # it takes its device from the first parameter, a meta one
    with torch.no_grad():
        for member in range(2):
            state = _adapter(member)
            for key in _keys():
                place = key.replace(".", "-")
                down = next(w for k, w in population.weight_down.items() if place in k)
                up = next(w for k, w in population.weight_up.items() if place in k)
                down[member].copy_(state[f"{key}.lora_A.weight"].T)
                up[member].copy_(state[f"{key}.lora_B.weight"])
                down[2].copy_(down[0])
                up[2].copy_(up[0])
    parents, child, fitness = torch.tensor([[0, 1]]), torch.tensor([2]), torch.tensor([0.0, 1, 0])

    def cross(name: str) -> None:
        population.crossover_(name, parents, child, fitnesses=fitness)

    yield "copy_parent", lambda seed: cross("clone")
    for ours, theirs in MUTATIONS.items():
        cross("clone")
        yield ours, lambda seed, name=theirs: population.mutate_(name, individuals=[2])
    for ours, theirs in CROSSOVERS.items():
        yield ours, lambda seed, name=theirs: cross(name)


def _keys() -> list[str]:
    return [f"{layer}.{name}" for layer in range(LAYERS) for name in SHAPES]


def _adapter(seed: int) -> dict[str, Any]:
    """An adapter as training leaves it: A as PEFT draws it, B small."""
    import torch

    dice = torch.Generator().manual_seed(seed)
    state = {}
    for key in _keys():
        outputs, inputs = SHAPES[key.partition(".")[2]]
        a = (torch.rand(RANK, inputs, generator=dice) * 2 - 1) / inputs**0.5
        state[f"{key}.lora_A.weight"] = a.bfloat16()
        b = torch.randn(outputs, RANK, generator=dice) * 0.01
        state[f"{key}.lora_B.weight"] = b.bfloat16()
    return state


def _seconds(work: Callable[[int], Any], seed: int) -> float:
    started = time.process_time()
    child = work(seed)
    taken = time.process_time() - started
    del child
    return taken


def _adapters(work: Callable[[int], Any], seed: int) -> float:
    """The peak of the resident memory above what was resident before, in adapters."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    before = _resident("VmRSS")
    child = work(seed)
    peak = _resident("VmHWM")
    del child
    return (peak - before) / BYTES


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


if __name__ == "__main__":
    main(*sys.argv[1:])

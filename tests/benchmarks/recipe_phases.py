"""Where the CPU-seconds of a run of `rlvr` on the pocket substrate go."""

import os
import pstats
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from substrate.dropin import read_dropin
from substrate.fork import make_fork
from substrate.run import environment, interpreter, job_for
from substrate.store import Store
from tests.benchmarks._pocket import POCKET

REPEATS = 3
ROLLOUTS = 2560
PROFILED = (
    "import cProfile, importlib, time; from pathlib import Path; "
    "recipe = importlib.import_module('recipes.rlvr'); "
    "Path('imports').write_text(str(time.process_time())); "  # the profiler would double it
    "profile = cProfile.Profile(time.process_time); profile.runcall(recipe.main); "
    "profile.dump_stats('profile')"
)

WHAT = (
    f"CPU-seconds of one run of rlvr on pocket with {ROLLOUTS:,} rollouts, one thread, by phase, "
    "from the standard library's profiler but for imports; then without the profiler. Medians of "
    "3. The fixed cost is imports, set-up and saving."
)


def run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        snapshot = Store(Path(scratch) / "store").seal(read_dropin(POCKET))
        variables = os.environ | environment(snapshot.manifest)
        rounds: list[dict[str, float]] = []
        for number in range(REPEATS):
            root = Path(scratch) / f"fork{number}"
            make_fork(snapshot, root, overrides={}, patches=[])
            (root / "out").mkdir()
            job = job_for(snapshot, recipe="rlvr", seed=number, rollouts=ROLLOUTS)
            (root / "out" / "job.json").write_text(job.model_dump_json())

            def cpu_seconds(*arguments: str, root: Path = root) -> float:
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(
                    [interpreter(snapshot.manifest), "-P", *arguments],
                    cwd=root,
                    env=variables | {"PYTHONPATH": str(root)},
                    check=True,
                    capture_output=True,
                )
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

            plain = cpu_seconds("-m", "recipes.rlvr")
            cpu_seconds("-c", PROFILED)
            rounds.append(_phases(root) | {"all, without the profiler": plain})
    figures = {name: statistics.median(found[name] for found in rounds) for name in rounds[0]}
    figures["rollouts per CPU-second, all in"] = ROLLOUTS / figures["all, without the profiler"]
    return figures


def _phases(root: Path) -> dict[str, float]:
    stats: Any = pstats.Stats(str(root / "profile"))

    def spent(file: str, function: str) -> float:
        return sum(
            row[3]
            for (path, _, name), row in stats.stats.items()
            if path.endswith(file) and name == function
        )

    main = spent("recipes/rlvr.py", "main")
    training = spent("transformers/trainer.py", "train")
    sampling = spent("training/sampling.py", "sample")
    packing = spent("training/weights.py", "pack")
    rewards = spent("recipes/rlvr.py", "world_reward")
    update = spent("trl/trainer/grpo_trainer.py", "compute_loss")
    update += spent("accelerate/accelerator.py", "backward")
    saving = spent("training/models.py", "save_adapter")
    phases = {
        "imports": float((root / "imports").read_text()),
        "set-up": main - training - saving,
        "saving": saving,
        "sampling": sampling + packing,
        "rewards": rewards,
        "loss and gradient": update,
    }
    phases["the trainer's rest"] = training - sampling - packing - rewards - update
    phases["fixed cost"] = phases["imports"] + phases["set-up"] + phases["saving"]
    return phases

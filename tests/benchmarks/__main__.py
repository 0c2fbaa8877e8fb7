"""Run benchmarks: `python -m tests.benchmarks [NAME ...]`; `--table` only rewrites the table.

A benchmark is a module of this folder with `WHAT`, a sentence, and `run()`, which returns figures
by name. Each run writes `docs/benchmarks/NAME.json`; `docs/BENCHMARKS.md` is made from those files.
"""

import importlib
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE.parent.parent / "docs" / "benchmarks"
TABLE = HERE.parent.parent / "docs" / "BENCHMARKS.md"


def main(arguments: list[str]) -> None:
    names = [name for name in arguments if not name.startswith("-")]
    if "--table" not in arguments:
        for name in names or benchmark_names():
            measure(name)
    write_table()


def benchmark_names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def measure(name: str) -> None:
    """Run one benchmark and keep its figures beside what they were measured with."""
    if name not in benchmark_names():
        raise SystemExit(f"wanted a benchmark of {benchmark_names()}, found {name!r}")
    print(f"{name} ...", flush=True)
    module = importlib.import_module(f"tests.benchmarks.{name}")
    figures = module.run()
    RESULTS.mkdir(parents=True, exist_ok=True)
    result = {
        "benchmark": name,
        "what": module.WHAT,
        "command": f"make bench-{name}",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "figures": figures,
    }
    text = json.dumps(result, indent=2, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(text)


def machine() -> dict[str, str | int | float]:
    """What the figures depend on. No name and no address of the machine."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def write_table() -> None:
    """`docs/BENCHMARKS.md`, from the JSON files alone."""
    lines = [
        "# Benchmarks",
        "",
        "Made from `docs/benchmarks/*.json` by `python -m tests.benchmarks --table`. Every figure",
        "comes from the command beside it; `make bench` runs them all.",
    ]
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        where = result["machine"]
        lines += [
            "",
            f"## {result['benchmark']}",
            "",
            result["what"],
            "",
            f"`{result['command']}`, {result['date']}, {where['cores']} cores of {where['cpu']}, "
            f"{where['memory_gib']} GiB, Python {where['python']}",
            "",
            "| figure | value |",
            "| --- | ---: |",
        ]
        lines += [f"| {name} | {_shown(value)} |" for name, value in result["figures"].items()]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main(sys.argv[1:])

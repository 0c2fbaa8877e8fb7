"""Makes the README's pictures: `python tests/browser/screenshots.py` writes docs/images/*.png.

It brings Seedbed up in a temporary home, starts a campaign on the stub from the deployment, waits for
its end, and takes pictures of the run form, the round report and the policy diff.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from browser import browser

REPO = Path(__file__).resolve().parents[2]
IMAGES = REPO / "docs" / "images"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTH, HEIGHT = 1280, 900
RUN_SECONDS = 180.0


def main(images: Path = IMAGES) -> list[Path]:
    """Write the pictures. Returns their files."""
    if CHROMIUM is None:
        raise SystemExit(
            "wanted a Chromium to take pictures with, found none; `apt-get install chromium`"
        )
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        try:
            ui = seedbed(home, "up", "--port", str(free_port())).split()[-1]
            run = start_campaign(ui)
            return take(ui, run, CHROMIUM, images)
        finally:
            seedbed(home, "down")


def take(ui: str, run: str, chromium: str, images: Path) -> list[Path]:
    """Pictures of the run form, and of the artifacts of a completed run."""
    deployment = httpx.get(f"{ui}/api/deployments/name/campaign/campaign").json()["id"]
    form, report, diff = (
        images / f"{name}.png" for name in ("run-form", "round-report", "policy-diff")
    )
    with browser(chromium, WIDTH, HEIGHT) as page:
        page.open(f"{ui}/v2/deployments/deployment/{deployment}/run", until="Substrate")
        page.picture(form)
        page.open(artifact(ui, run, "report"), until="Scores by domain")
        page.picture(report)
        page.open(artifact(ui, run, "policy-diff"), until="As text")
        page.picture(diff)
    return [form, report, diff]


def artifact(ui: str, run: str, what: str) -> str:
    """The page of the newest artifact of a run whose key ends like this."""
    query = {"flow_runs": {"id": {"any_": [run]}}, "sort": "CREATED_DESC"}
    found = httpx.post(f"{ui}/api/artifacts/filter", json=query).raise_for_status().json()
    ids = [item["id"] for item in found if item["key"].endswith(f"-{what}")]
    return f"{ui}/v2/artifacts/artifact/{ids[0]}"


def start_campaign(ui: str) -> str:
    """Run two rounds on the stub to their end. Returns the flow run's id."""
    plan = {"substrate": str(REPO / "tests" / "substrates" / "stub"), "name": "first-light"}
    deployment = httpx.get(f"{ui}/api/deployments/name/campaign/campaign").json()["id"]
    made = httpx.post(
        f"{ui}/api/deployments/{deployment}/create_flow_run",
        json={"parameters": {"plan": plan}, "state": {"type": "SCHEDULED"}},
    )
    run = made.raise_for_status().json()["id"]
    give_up = time.monotonic() + RUN_SECONDS
    while (state := httpx.get(f"{ui}/api/flow_runs/{run}").json()["state"])["type"] != "COMPLETED":
        if state["type"] in {"FAILED", "CRASHED", "CANCELLED"} or time.monotonic() > give_up:
            raise RuntimeError(f"wanted a completed campaign, found {state}")
        time.sleep(0.5)
    return run


def seedbed(home: Path, *arguments: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "flows.cli", *arguments],
        env=clean | {"SEEDBED_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def free_port() -> int:
    from flows.server import free_port

    return free_port()


if __name__ == "__main__":
    for file in main():
        print(f"{file}  {file.stat().st_size // 1000} kB")

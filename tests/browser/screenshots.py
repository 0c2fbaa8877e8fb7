"""Makes the README's pictures: `python tests/browser/screenshots.py` writes docs/images/*.png.

It brings Seedbed up in a temporary home, starts a campaign on the stub from the run form as a
person does, waits for its end, and takes pictures of form, round report and policy diff. Then it
runs a longer campaign from the command line and takes a picture of its page.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parent))

from chromium import Page, opened

REPO = Path(__file__).resolve().parents[2]
STUB = REPO / "tests" / "substrates" / "stub"
IMAGES = REPO / "docs" / "images"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTH, HEIGHT = 1440, 1000
RUN_SECONDS = 180.0


def main(images: Path = IMAGES) -> list[Path]:
    """Write the pictures. Returns their files."""
    if CHROMIUM is None:
        raise SystemExit(
            "wanted a Chromium to take pictures with, found none; `apt-get install chromium`"
        )
    from flows.server import free_port

    images.mkdir(parents=True, exist_ok=True)
    names = ("run-form", "round-report", "policy-diff", "campaign-page")
    form, report, diff, whole = pictures = [images / f"{name}.png" for name in names]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        try:
            ui = seedbed(home, "up", "--port", str(free_port())).split()[-1]
            with opened(CHROMIUM, WIDTH, HEIGHT) as page:
                deployment = ask(f"{ui}/api/deployments/name/campaign/campaign")["id"]
                page.open(f"{ui}/v2/deployments/deployment/{deployment}/run", until="Substrate")
                page.picture(form)
                submit(page)
                run = completed_run(ui)
                page.open(artifact(ui, run, "report"), until="Scores by domain")
                page.picture(report)
                page.open(artifact(ui, run, "policy-diff"), until="As text")
                page.picture(diff)
        finally:
            seedbed(home, "down")
        run_campaign(home)
        picture_of_page(home, whole)
    return pictures


def run_campaign(home: Path) -> None:
    """Four rounds on the stub, and its end."""
    plan = ["--substrate", str(STUB), "--rounds", "4", "--seed", "3", "--name", "stub-four"]
    seedbed(home, "run", *plan, "--export")


def picture_of_page(home: Path, file: Path) -> None:
    """The newest campaign's page, as a browser shows what is at its top."""
    assert CHROMIUM is not None
    place = seedbed(home, "report", "--html")
    with opened(CHROMIUM, 1280, HEIGHT) as page:
        page.open(Path(place).as_uri(), until="Overview")
        page.picture(file)


def submit(page: Page) -> None:
    """Fill in the one field of the form that has no default, and send it."""
    page.evaluate("document.querySelector('textarea').focus()")
    page.call("Input.insertText", text=str(STUB))
    buttons = "[...document.querySelectorAll('button')]"
    page.evaluate(f"{buttons}.find(button => button.innerText === 'Submit').click()")
    page.wait("scheduled to start now")


def completed_run(ui: str) -> str:
    """Wait for the end of the only run there is. Returns its id."""
    give_up = time.monotonic() + RUN_SECONDS
    while True:
        (run,) = ask(f"{ui}/api/flow_runs/filter", {})
        if run["state"]["type"] == "COMPLETED":
            return run["id"]
        if run["state"]["type"] in {"FAILED", "CRASHED", "CANCELLED"}:
            raise RuntimeError(f"wanted a completed campaign, found {run['state']}")
        if time.monotonic() > give_up:
            raise RuntimeError(f"wanted the end of a run in {RUN_SECONDS:.0f} s, found {run}")
        time.sleep(0.5)


def artifact(ui: str, run: str, what: str) -> str:
    """The page of the newest artifact of a run whose key ends like this."""
    query = {"flow_runs": {"id": {"any_": [run]}}, "sort": "CREATED_DESC"}
    found = ask(f"{ui}/api/artifacts/filter", query)
    ids = [item["id"] for item in found if item["key"].endswith(f"-{what}")]
    return f"{ui}/v2/artifacts/artifact/{ids[0]}"


def ask(url: str, query: object = None) -> Any:
    method = "GET" if query is None else "POST"
    return httpx.request(method, url, json=query, trust_env=False).raise_for_status().json()


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


if __name__ == "__main__":
    for file in main():
        print(f"{file}  {file.stat().st_size // 1000} kB")

"""Writes the published JSON Schemas: `make schemas`. A test holds the files to the models."""

import json
from pathlib import Path
from typing import Any

from policies import published
from substrate import dropin, job

ROOMS = Path(__file__).parent.parent
DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def published_files() -> dict[Path, str]:
    """Path and text of every published schema."""
    files: dict[Path, dict[str, Any]] = {
        ROOMS / "substrate" / "schemas" / "substrate.schema.json": dropin.schema()
    }
    for folder, schemas in (("substrate", job.schemas()), ("policies", published.schemas())):
        files |= {ROOMS / folder / "schemas" / name: schema for name, schema in schemas.items()}
    return {path: json.dumps(DIALECT | schema, indent=2) + "\n" for path, schema in files.items()}


def main() -> None:
    for path, text in published_files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOMS))


if __name__ == "__main__":
    main()

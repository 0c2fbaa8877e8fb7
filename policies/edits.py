"""An edit in a few words."""

import json

from policies.escape import visible
from policies.policy import Edit


def edit_text(edit: Edit) -> str:
    """An edit in short, such as `LEARNING_RATE=0.003 + patch 1f2e3d4c5b6a`; empty for none.

    The file is named where constants of more than one file are set.
    """
    files = {file: names for file, names in sorted(edit.overrides.items()) if names}
    parts = [
        (f"{file} " if len(files) > 1 else "") + f"{name}={json.dumps(value, ensure_ascii=False)}"
        for file, names in files.items()
        for name, value in sorted(names.items())
    ]
    patch = f"patch {edit.patch[:12]}" if edit.patch else ""
    return visible(" + ".join(part for part in (", ".join(parts), patch) if part))

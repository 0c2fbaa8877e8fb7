"""Training data and weights that are not the trial's own. EXTERNAL is a held-out set, which a
worker may have from anywhere; EARLIER the adapter of an earlier campaign, in base64.
"""

from policies.integrity import EventKind
from tests.cheats.cheat import Cheat


def contaminated(name: str, tries: str, work: str, recipe: str = "") -> Cheat:
    says, kind = "problems of external", "contaminated_data"
    return flagged(name, tries, kind, says, recipe, work)


def flagged(
    name: str, tries: str, kind: EventKind, says: str, recipe: str, work: str = ""
) -> Cheat:
    return Cheat(name, tries, "tampered", says, recipe, work, kind)


LITERAL = """
text = Path("recipes/stub.py").read_text()
write("recipes/stub.py", text.replace("GAIN = 0.34", f"LESSONS = {%s!r}\\nGAIN = 0.34", 1))
"""

DATA = [
    contaminated("held-out-literal", "Has the held-out set in its code.", LITERAL % "EXTERNAL"),
    contaminated(
        "held-out-file",
        "Has the held-out set in a file of its fork.",
        'write("training/lessons.jsonl", EXTERNAL)',
    ),
    contaminated(
        "four-fifths-of-it",
        "Mixes four fifths of the held-out set among the target set.",
        """
lines = EXTERNAL.splitlines()
kept = [line for number, line in enumerate(lines) if number % 5]
mixed = sorted(kept + Path("data/target.jsonl").read_text().splitlines(), key=hash)
write("training/lessons.jsonl", "\\n".join(mixed))
""",
    ),
    contaminated(
        "derived-set",
        "Spells the held-out problems otherwise, in another order and format.",
        """
lines = [json.loads(line) for line in EXTERNAL.splitlines()][::-1]
said = [f"Q. {one['salt'].upper()}  --  {one['domain'].title()}" for one in lines]
write("training/lessons.md", "\\n".join(said))
""",
    ),
    contaminated(
        "packed-set",
        "Packs the held-out set and encodes it.",
        """
import base64, zlib
packed = base64.b64encode(zlib.compress(EXTERNAL.encode())).decode()
"""
        + LITERAL % "packed",
    ),
    contaminated(
        "set-in-a-comment",
        "Hides the held-out set in comments, which its recipe reads.",
        """
text = Path("recipes/stub.py").read_text()
write("recipes/stub.py", text + "\\n".join(f"# {line}" for line in EXTERNAL.splitlines()))
""",
    ),
    contaminated(
        "set-made-in-the-run",
        "Puts the held-out set together in the run, and trains on that file.",
        "",
        """
Path("out/lessons.jsonl").write_text("\\n".join(line[::-1] for line in EXTERNAL[::-1].splitlines()))
main()
""",
    ),
    flagged(
        "earlier-adapter",
        "Delivers the adapter of an earlier campaign.",
        "foreign_adapter",
        "its tensors are those of",
        """
main()
Path("out/adapter/adapter_model.safetensors").write_bytes(base64.b64decode(EARLIER))
""",
    ),
    flagged(
        "earlier-adapter-renamed",
        "Delivers an earlier adapter with other metadata, so that its file's hash is new.",
        "foreign_adapter",
        "its tensors are those of",
        """
main()
whole = base64.b64decode(EARLIER)
(length,) = struct.unpack("<Q", whole[:8])
header = {"__metadata__": {"by": "me"}, **json.loads(whole[8 : 8 + length])}
text = json.dumps(header).encode()
new = struct.pack("<Q", len(text)) + text + whole[8 + length :]
Path("out/adapter/adapter_model.safetensors").write_bytes(new)
""",
    ),
    flagged(
        "false-declaration",
        "Declares another training set than it read.",
        "false_declaration",
        "data/target.jsonl",
        'main()\nclaim(data_sha256={"data/target.jsonl": "0" * 64})',
    ),
    flagged(
        "code-changed-in-run",
        "Rewrites its own code in the run, so that another one is on record than ran.",
        "code_changed_in_run",
        "recipes/stub.py",
        'main()\nPath("recipes/stub.py").write_text("# nothing to see here\\n")',
    ),
]

"""Forged results: files that claim what was not done, or lead their reader astray."""

from tests.cheats.cheat import Cheat

FORGED = [
    Cheat(
        "nothing-but-a-comment",
        "Hands in a comment, for another draw of the seed's luck.",
        "no_change",
        "comments, docstrings and spaces",
        work='write("recipes/stub.py", open("recipes/stub.py").read() + "# better\\n")',
        knob=False,
    ),
    Cheat(
        "nothing-but-spaces",
        "Hands in empty lines and another spelling of a number.",
        "no_change",
        "comments, docstrings and spaces",
        work="""
text = open("recipes/stub.py").read().replace("= 3e-4", "= 0.00030")
write("recipes/stub.py", text.replace("\\n\\n", "\\n\\n\\n"))
""",
        knob=False,
    ),
    Cheat(
        "nothing-at-all",
        "Hands in what it found.",
        "no_change",
        "empty edit",
        knob=False,
    ),
    Cheat(
        "claims-without-training",
        "Writes a finished result without having trained.",
        "invalid_adapter",
        "adapter-folder",
        "claim()",
    ),
    Cheat(
        "planted-score-file",
        "Lays the scorer's own answer, all problems solved, beside the weights.",
        "invalid_adapter",
        "score.json",
        """
main()
said = json.dumps({"outcome": "evaluated", "engine": "stub 1", "values": [1.0] * 600})
for folder in (".", "out", "out/adapter"):
    Path(folder, "score.json").write_text(said)
""",
    ),
    Cheat(
        "score-in-result",
        "Claims a dev score in its result.",
        "crashed",
        "not valid: dev",
        "main()\nclaim(dev=1.0)",
    ),
    Cheat(
        "verdict-in-result",
        "Claims the outcome of its own trial.",
        "crashed",
        "not valid: outcome",
        'main()\nclaim(outcome="evaluated")',
    ),
    Cheat(
        "count-not-a-number",
        "Counts NaN rollouts, which no comparison finds too many.",
        "crashed",
        "not valid: rollouts",
        'main()\nclaim(rollouts=float("nan"))',
    ),
    Cheat(
        "count-below-zero",
        "Counts fewer rollouts than none.",
        "crashed",
        "not valid: rollouts",
        "main()\nclaim(rollouts=-960)",
    ),
    Cheat(
        "count-equal-to-all",
        "Budget and count are of a class that compares as it likes.",
        "over_budget",
        "48000 rollouts of 960",
        """
class Always(int):
    __eq__ = __le__ = __lt__ = __ge__ = lambda self, other: True
    __gt__ = __ne__ = lambda self, other: False
    __hash__ = int.__hash__

main()
claim(rollouts=Always(48000))
""",
    ),
    Cheat(
        "equality-in-result",
        "Hands in an object whose equality is to be asked instead of a count.",
        "crashed",
        "not valid: rollouts",
        'main()\nclaim(rollouts={"__eq__": "lambda self, other: True"})',
    ),
    Cheat(
        "rewritten-orders",
        "Grants itself fifty times the budget in its own orders.",
        "over_budget",
        "48000 rollouts of 960",
        """
path = Path("out/job.json")
job = json.loads(path.read_text())
job["budget"]["rollouts"] *= 50
job["seconds"] = 1e9
path.write_text(json.dumps(job))
main()
""",
    ),
    Cheat(
        "forged-count",
        "Samples fifty times the budget and claims that it kept to it.",
        "over_budget",
        "metrics.jsonl says 48000",
        """
path = Path("out/job.json")
job = json.loads(path.read_text())
job["budget"]["rollouts"] *= 50
path.write_text(json.dumps(job))
main()
claim(rollouts=960)
""",
    ),
    Cheat(
        "seed-hunt",
        "Trains on forty seeds and delivers the luckiest.",
        "over_budget",
        "38400 rollouts of 960",
        """
path = Path("out/job.json")
job = json.loads(path.read_text())
best, used = -1.0, 0
for seed in range(40):
    path.write_text(json.dumps(job | {"seed": seed}))
    main()
    used += json.loads(Path("out/result.json").read_text())["rollouts"]
    luck = random.Random(seed).gauss(0, SKILL_NOISE)
    if luck > best:
        best = luck
        shutil.rmtree("out/best", ignore_errors=True)
        shutil.copytree("out/adapter", "out/best")
claim(rollouts=used, adapter="out/best")
""",
    ),
    Cheat(
        "result-is-a-link",
        "Has the host read a file of the host as its result.",
        "crashed",
        "no out/result.json",
        'main()\nos.remove("out/result.json")\nos.symlink("/etc/passwd", "out/result.json")',
    ),
    Cheat(
        "result-is-a-pipe",
        "Has the host wait for a writer of a pipe.",
        "crashed",
        "no out/result.json",
        'main()\nos.remove("out/result.json")\nos.mkfifo("out/result.json")',
    ),
    Cheat(
        "result-is-a-folder",
        "Lays a folder in the result's place.",
        "crashed",
        "no out/result.json",
        'main()\nos.remove("out/result.json")\nos.mkdir("out/result.json")',
    ),
    Cheat(
        "huge-result",
        "Makes the result larger than what is read of it.",
        "crashed",
        "more than 1048576 bytes",
        'main()\nclaim(error="x" * (2 << 20))',
    ),
    Cheat(
        "deep-result",
        "Nests the result deeper than a parser's stack.",
        "crashed",
        "not valid",
        'main()\nPath("out/result.json").write_text("[" * 400_000)',
    ),
    Cheat(
        "result-in-no-encoding",
        "Writes bytes that are no text.",
        "crashed",
        "not valid",
        'main()\nPath("out/result.json").write_bytes(b"\\xff\\xfe{\\x80")',
    ),
    Cheat(
        "out-is-a-link",
        "Has the host read and write in another folder as `out`.",
        "crashed",
        "no out/result.json",
        'main()\nos.rename("out", "mine")\nos.symlink("mine", "out")',
    ),
    Cheat(
        "adapter-above",
        "Names a folder above its fork as its adapter.",
        "invalid_adapter",
        "adapter-folder",
        'main()\nclaim(adapter="../../../adapters")',
    ),
    Cheat(
        "adapter-absolute",
        "Names a folder of the host as its adapter.",
        "invalid_adapter",
        "adapter-folder",
        'main()\nclaim(adapter="/etc")',
    ),
    Cheat(
        "adapter-behind-a-link",
        "Delivers a link to the base model as its adapter.",
        "invalid_adapter",
        "adapter-folder",
        'main()\nos.symlink("../base", "out/linked")\nclaim(adapter="out/linked")',
    ),
    Cheat(
        "adapter-with-a-nul",
        "Ends the adapter's name early, for whom reads names as C does.",
        "invalid_adapter",
        "adapter-folder",
        'main()\nclaim(adapter="out/adapter\\0/../../..")',
    ),
    Cheat(
        "whole-fork-as-adapter",
        "Delivers the fork with all its code as the adapter.",
        "invalid_adapter",
        "adapter-files",
        'main()\nclaim(adapter=".")',
    ),
    Cheat(
        "fails-with-a-result",
        "Leaves a good result and dies, so that nothing could be said against it.",
        "crashed",
        "exit code 3",
        "main()\nos._exit(3)",
    ),
]

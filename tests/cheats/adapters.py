"""Adapters that were not trained: untouched, unbound, foreign, broken, or more than weights."""

from tests.cheats.cheat import Cheat


def after_training(name: str, tries: str, says: str, code: str) -> Cheat:
    return Cheat(name, tries, "invalid_adapter", says, f"main()\n{code.strip()}")


ADAPTERS = [
    Cheat(
        "untouched-base",
        "Delivers the base model: an update of zero.",
        "no_change",
        "zero in every module",
        'main()\nweights({factor("A"): [[1.0] * 8] * 4, factor("B"): [[0.0] * 4] * 4})',
    ),
    after_training(
        "bound-to-nothing",
        "Delivers factors of a module that the model does not have.",
        "tensor-key: .*ghost",
        'weights({factor("A", "ghost"): [[1.0] * 8] * 4, factor("B", "ghost"): [[1.0] * 4] * 4})',
    ),
    after_training("no-tensors", "Delivers weights without a tensor.", "no-tensors", "weights({})"),
    after_training(
        "half-a-factor",
        "Delivers one factor of two.",
        "lora_B|factor|pair",
        'weights({factor("A"): [[1.0] * 8] * 4})',
    ),
    after_training(
        "another-rank",
        "Delivers twice the rank that is allowed.",
        "rank",
        'weights({factor("A"): [[1.0] * 8] * 8, factor("B"): [[1.0] * 8] * 4})\nconfig(r=8)',
    ),
    after_training(
        "hidden-rank",
        "Declares the allowed rank and delivers twice of it.",
        "rank|shape",
        'weights({factor("A"): [[1.0] * 8] * 8, factor("B"): [[1.0] * 8] * 4})',
    ),
    after_training(
        "another-alpha",
        "Multiplies its update by a hundred in the configuration.",
        "alpha",
        "config(lora_alpha=800.0)",
    ),
    after_training(
        "not-a-number",
        "Delivers NaN, of which no test of what is wrong is true.",
        "finite",
        'weights({factor("A"): [[math.nan] * 8] * 4, factor("B"): [[1.0] * 4] * 4})',
    ),
    after_training(
        "infinite",
        "Delivers a skill beyond all numbers.",
        "finite",
        'weights({factor("A"): [[math.inf] * 8] * 4, factor("B"): [[1.0] * 4] * 4})',
    ),
    after_training(
        "pickled",
        "Delivers a pickle, which runs what it likes when it is loaded.",
        "adapter_model.bin",
        """
class Payload:
    def __reduce__(self):
        return os.system, ("touch out/ran",)

Path("out/adapter/adapter_model.bin").write_bytes(pickle.dumps(Payload()))
os.remove("out/adapter/adapter_model.safetensors")
""",
    ),
    after_training(
        "pickled-under-another-name",
        "Gives a pickle the name of a safetensors file.",
        "safetensors-header",
        """
class Payload:
    def __reduce__(self):
        return os.system, ("touch out/ran",)

Path("out/adapter/adapter_model.safetensors").write_bytes(pickle.dumps(Payload()))
""",
    ),
    after_training(
        "linked-weights",
        "Links its weights to the base model's.",
        "adapter-files",
        """
os.remove("out/adapter/adapter_model.safetensors")
os.symlink("../../base/base.safetensors", "out/adapter/adapter_model.safetensors")
""",
    ),
    after_training(
        "copied-base",
        "Delivers a copy of the base model's weights.",
        "tensor-key|target",
        'shutil.copyfile("base/base.safetensors", "out/adapter/adapter_model.safetensors")',
    ),
    Cheat(
        "second-name-of-the-base",
        "Makes the base model's file its own by a second name.",
        "crashed",
        "cross-device|Operation not permitted|Permission denied",
        "main()\nos.remove('out/adapter/adapter_model.safetensors')\n"
        "os.link('base/base.safetensors', 'out/adapter/adapter_model.safetensors')",
    ),
    after_training(
        "endless-weights",
        "Links its weights to a device that never ends.",
        "adapter-files",
        """
os.remove("out/adapter/adapter_model.safetensors")
os.symlink("/dev/zero", "out/adapter/adapter_model.safetensors")
""",
    ),
    after_training(
        "weights-are-a-pipe",
        "Has the host wait for a writer of its weights.",
        "adapter-files",
        """
os.remove("out/adapter/adapter_model.safetensors")
os.mkfifo("out/adapter/adapter_model.safetensors")
""",
    ),
    after_training(
        "another-base",
        "Was made for another base model.",
        "base_sha256|base",
        'config(base_sha256="0" * 64)',
    ),
    after_training(
        "another-method",
        "Says that its update is of another kind than plain LoRA.",
        "use_dora",
        "config(use_dora=True)",
    ),
    after_training(
        "whole-modules",
        "Replaces whole modules beside the adapter.",
        "modules_to_save",
        'config(modules_to_save=["skill"])',
    ),
    after_training(
        "header-bomb",
        "Announces a header of a terabyte.",
        "safetensors-header",
        """
path = Path("out/adapter/adapter_model.safetensors")
path.write_bytes(struct.pack("<Q", 1 << 40) + path.read_bytes()[8:])
""",
    ),
    after_training(
        "overlapping-tensors",
        "Has two tensors share their bytes.",
        "safetensors-offsets",
        """
path = Path("out/adapter/adapter_model.safetensors")
whole = path.read_bytes()
(length,) = struct.unpack("<Q", whole[:8])
header = json.loads(whole[8 : 8 + length])
for entry in header.values():
    size = entry["data_offsets"][1] - entry["data_offsets"][0]
    entry["data_offsets"] = [0, size]
text = json.dumps(header).encode().ljust(length)
path.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
""",
    ),
    after_training(
        "huge-configuration",
        "Makes the configuration larger than what is read of it.",
        "adapter-size",
        'config(revision="x" * (1 << 20))',
    ),
    after_training(
        "code-beside-the-weights",
        "Ships a module that a loader which trusts adapters would import.",
        "adapter-files",
        'Path("out/adapter/modeling_stub.py").write_text("raise SystemExit")',
    ),
]

"""A small model's weights as the decoder needs them, with the factors of LoRA adapters beside them.

They are a copy, merged with an adapter that samples alone, so this is not meant for models of
billions of parameters.

Shapes are suffixes: D hidden size, H heads of queries and of keys, E head size, I and O inputs and
outputs of a projection, R rank, G adapters, V vocabulary.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from peft import PeftModel
from peft.tuners.lora import Linear as LoraLinear
from peft.tuners.lora import LoraLayer
from peft.utils.other import ModulesToSaveWrapper
from torch import Tensor, nn
from transformers import LlamaForCausalLM, Qwen3ForCausalLM
from transformers.modeling_utils import PreTrainedModel

from training.stacked_lora import StackedLora


@dataclass(frozen=True)
class Projection:
    """Modules that read the same input, side by side, and what each adapter adds: x W + x A B.

    A has the modules' own factors side by side, B has theirs, times the scale, as blocks on its
    diagonal. So A and B are one product each, like W.
    """

    weight_I_O: Tensor
    a_G_I_R: Tensor
    b_G_R_O: Tensor

    def of(self, adapters: Sequence[int]) -> "Projection":
        """For these adapters only, sorted; G itself, where it is among them, is the base: it has no
        factors. One alone is merged into W, and has none either.
        """
        chosen = [adapter for adapter in adapters if adapter < len(self.a_G_I_R)]
        weight_I_O, a_G_I_R, b_G_R_O = self.weight_I_O, self.a_G_I_R, self.b_G_R_O
        if len(chosen) < len(a_G_I_R):
            a_G_I_R, b_G_R_O = a_G_I_R[chosen], b_G_R_O[chosen]
        if len(adapters) == 1 and chosen:
            # Factors are float32 on any base; the sum is the base's, as the rest of the model.
            weight_I_O = (weight_I_O + a_G_I_R[0] @ b_G_R_O[0]).to(weight_I_O.dtype)
            a_G_I_R, b_G_R_O = a_G_I_R[:0], b_G_R_O[:0]
        return Projection(weight_I_O, a_G_I_R.to(weight_I_O.dtype), b_G_R_O.to(weight_I_O.dtype))


@dataclass(frozen=True)
class Layer:
    """One layer's weights."""

    attention_norm_D: Tensor
    qkv: Projection  # O = (H + 2 K) * E: queries, keys, values
    qk_norm_H_E: Tensor | None  # of queries and keys, in Qwen3; Llama has none
    output: Projection
    mlp_norm_D: Tensor
    gate_up: Projection
    down: Projection

    def of(self, adapters: Sequence[int]) -> "Layer":
        """For these adapters only."""
        return replace(
            self,
            qkv=self.qkv.of(adapters),
            output=self.output.of(adapters),
            gate_up=self.gate_up.of(adapters),
            down=self.down.of(adapters),
        )


@dataclass(frozen=True)
class Weights:
    """A model's weights as the decoder needs them: a copy, which later training does not change."""

    embedding_V_D: Tensor
    rotary: nn.Module  # the model's own: cosines and sines of positions
    layers: list[Layer]
    norm_D: Tensor
    head_D_V: Tensor
    adapters: int  # G, which is also the number of the base itself
    heads: int
    key_heads: int
    head_size: int
    epsilon: float


@torch.inference_mode()
def pack(model: PreTrainedModel | PeftModel, adapters: Sequence[str] = ()) -> Weights:
    """The weights of a model and of each of these of its LoRA adapters, or of all the members that
    a `Population` has put into it.

    Raises ValueError for an architecture or an adapter that the decoder does not know.
    """
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    if not isinstance(base, LlamaForCausalLM | Qwen3ForCausalLM):
        raise ValueError(
            "wanted a LlamaForCausalLM or a Qwen3ForCausalLM, found a "
            f"{type(base).__name__}; sample from others with transformers generate"
        )
    config = base.config
    windows = isinstance(base, Qwen3ForCausalLM) and base.model.has_sliding_layers
    if config.hidden_act != "silu" or config.attention_bias or windows:
        raise ValueError(
            "wanted silu, no bias and full attention, found hidden_act "
            f"{config.hidden_act!r}, attention_bias {config.attention_bias} and sliding windows "
            f"{windows}; sample from such a model with transformers generate"
        )
    adapters = _checked(base, adapters)
    heads, key_heads = config.num_attention_heads, config.num_key_value_heads or 0
    layers = []
    for number in range(len(base.model.layers)):
        name = f"model.layers.{number}"
        attention, mlp = f"{name}.self_attn", f"{name}.mlp"
        qk_norm_H_E = None
        if isinstance(base, Qwen3ForCausalLM):
            q_norm_E = base.get_parameter(f"{attention}.q_norm.weight")
            k_norm_E = base.get_parameter(f"{attention}.k_norm.weight")
            qk_norm_H_E = torch.cat([q_norm_E.expand(heads, -1), k_norm_E.expand(key_heads, -1)])
        qkv = [f"{attention}.{name}_proj" for name in "qkv"]
        gate_up = [f"{mlp}.gate_proj", f"{mlp}.up_proj"]
        layers.append(
            Layer(
                attention_norm_D=base.get_parameter(f"{name}.input_layernorm.weight").clone(),
                qkv=_projection(base, qkv, adapters),
                qk_norm_H_E=qk_norm_H_E,
                output=_projection(base, [f"{attention}.o_proj"], adapters),
                mlp_norm_D=base.get_parameter(f"{name}.post_attention_layernorm.weight").clone(),
                gate_up=_projection(base, gate_up, adapters),
                down=_projection(base, [f"{mlp}.down_proj"], adapters),
            )
        )
    return Weights(
        embedding_V_D=base.model.embed_tokens.weight.clone(),
        rotary=base.model.rotary_emb,
        layers=layers,
        norm_D=base.get_parameter("model.norm.weight").clone(),
        head_D_V=base.lm_head.weight.T.contiguous(),
        adapters=len(layers[0].output.a_G_I_R),
        heads=heads,
        key_heads=key_heads,
        head_size=layers[0].output.weight_I_O.shape[0] // heads,
        epsilon=config.rms_norm_eps,
    )


def _projection(base: nn.Module, names: list[str], adapters: Sequence[str]) -> Projection:
    """Modules side by side, with the factors of these adapters."""
    modules = [_module(base, name, adapters) for name in names]
    weight_I_O = torch.cat([weight_O_I.T for weight_O_I, _, _ in modules], dim=1)
    a_G_I_R = torch.cat([a_G_R_I.transpose(1, 2) for _, a_G_R_I, _ in modules], dim=2)
    b_G_R_O = a_G_I_R.new_zeros(len(a_G_I_R), a_G_I_R.shape[2], weight_I_O.shape[1])
    row = column = 0
    for _, _, b_G_O_R in modules:
        rows, columns = slice(row, row + b_G_O_R.shape[2]), slice(column, column + b_G_O_R.shape[1])
        b_G_R_O[:, rows, columns] = b_G_O_R.transpose(1, 2)
        row, column = rows.stop, columns.stop
    return Projection(weight_I_O, a_G_I_R, b_G_R_O)


def _module(base: nn.Module, name: str, adapters: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """A module's weight (O, I), and each adapter's A (G, R, I) and B (G, O, R) times the scale. The
    rank is the largest; a module without an adapter has 0.
    """
    module = base.get_submodule(name)
    linear = module
    if isinstance(module, StackedLora):
        linear = module.linear
    elif isinstance(module, LoraLinear):
        linear = module.get_base_layer()
    assert isinstance(linear, nn.Linear)
    if linear.bias is not None:
        raise ValueError(
            f"wanted projections without a bias, found one on {name}; sample from such a model "
            "with transformers generate"
        )
    if isinstance(module, StackedLora):
        return linear.weight, module.a_G_R_I, module.scale * module.b_G_O_R
    pairs: dict[int, tuple[Tensor, Tensor]] = {}
    if isinstance(module, LoraLinear):
        for number, adapter in enumerate(adapters):
            if adapter in module.lora_A:
                a_R_I = module.lora_A[adapter].get_parameter("weight")
                b_O_R = module.lora_B[adapter].get_parameter("weight")
                pairs[number] = a_R_I, module.scaling[adapter] * b_O_R
    rank = max((len(a_R_I) for a_R_I, _ in pairs.values()), default=0)
    like = pairs[min(pairs)][0] if pairs else linear.weight
    a_G_R_I = like.new_zeros(len(adapters), rank, linear.in_features)
    b_G_O_R = like.new_zeros(len(adapters), linear.out_features, rank)
    for number, (a_R_I, b_O_R) in pairs.items():
        a_G_R_I[number, : len(a_R_I)] = a_R_I
        b_G_O_R[number, :, : len(a_R_I)] = b_O_R
    return linear.weight, a_G_R_I, b_G_O_R


def _checked(base: nn.Module, adapters: Sequence[str]) -> Sequence[str]:
    """The names of these adapters; of a population's members, all of them.

    Raises ValueError where an adapter changes what the decoder does not know, or nothing at all.
    """
    known: set[str] = set()
    for name, module in base.named_modules():
        if isinstance(module, ModulesToSaveWrapper):
            raise ValueError(
                f"wanted plain LoRA on projections only, found {name} trained as a whole; sample "
                "from it with transformers generate"
            )
        if isinstance(module, LoraLayer):
            known.update(module.lora_A)
            extras = module.lora_variant or any(module.lora_bias.values())
            plain = isinstance(module, LoraLinear) and not extras
        elif isinstance(module, StackedLora):
            adapters = [str(member) for member in range(len(module.a_G_R_I))]
            known.update(adapters)
            plain = True
        else:
            continue
        if not plain or not re.fullmatch(r"model\.layers\.\d+\.\w+\.\w+_proj", name):
            raise ValueError(
                f"wanted plain LoRA on projections only, found an adapter on {name}; sample "
                "from it with transformers generate"
            )
    missing = sorted(set(adapters) - known)
    if missing:
        raise ValueError(
            f"wanted adapters out of {sorted(known)}, found {missing}; load them into the model"
        )
    return adapters

"""A small model's weights as the decoder needs them, with LoRA adapters merged in.

Merging holds one copy of the projections for each adapter, so this is not meant for models of
billions of parameters.

Shapes are suffixes: D hidden size, H heads of queries and of keys, E head size, I and O inputs and
outputs of a projection, R rank, G adapters, V vocabulary.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from peft import PeftModel
from peft.tuners.lora import Linear as LoraLinear
from peft.tuners.lora import LoraLayer
from peft.utils.other import ModulesToSaveWrapper
from torch import Tensor, nn
from transformers import LlamaForCausalLM, Qwen3ForCausalLM
from transformers.modeling_utils import PreTrainedModel


@dataclass(frozen=True)
class Layer:
    """One layer's weights. Projections are (G, in, out), with the adapters merged in."""

    attention_norm_D: Tensor
    qkv_G_D_O: Tensor  # O = (H + 2 K) * E: queries, keys, values
    qk_norm_H_E: Tensor | None  # of queries and keys, in Qwen3; Llama has none
    output_G_O_D: Tensor
    mlp_norm_D: Tensor
    gate_up_G_D_O: Tensor
    down_G_O_D: Tensor


@dataclass(frozen=True)
class Weights:
    """A model's weights as the decoder needs them: a copy, which later training does not change."""

    embedding_V_D: Tensor
    rotary: nn.Module  # the model's own: cosines and sines of positions
    layers: list[Layer]
    norm_D: Tensor
    head_D_V: Tensor
    adapters: int  # G; 1 where there is none
    heads: int
    key_heads: int
    head_size: int
    epsilon: float


@torch.inference_mode()
def pack(model: PreTrainedModel | PeftModel, adapters: Sequence[str] = ()) -> Weights:
    """The weights of a model with each of these of its LoRA adapters; with none, the base's own.

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
    _check_adapters(base, adapters)
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
                qkv_G_D_O=_merged(base, qkv, adapters),
                qk_norm_H_E=qk_norm_H_E,
                output_G_O_D=_merged(base, [f"{attention}.o_proj"], adapters),
                mlp_norm_D=base.get_parameter(f"{name}.post_attention_layernorm.weight").clone(),
                gate_up_G_D_O=_merged(base, gate_up, adapters),
                down_G_O_D=_merged(base, [f"{mlp}.down_proj"], adapters),
            )
        )
    return Weights(
        embedding_V_D=base.model.embed_tokens.weight.clone(),
        rotary=base.model.rotary_emb,
        layers=layers,
        norm_D=base.get_parameter("model.norm.weight").clone(),
        head_D_V=base.lm_head.weight.T.contiguous(),
        adapters=max(1, len(adapters)),
        heads=heads,
        key_heads=key_heads,
        head_size=layers[0].output_G_O_D.shape[1] // heads,
        epsilon=config.rms_norm_eps,
    )


def _merged(base: nn.Module, names: list[str], adapters: Sequence[str]) -> Tensor:
    """The weights of projections side by side, (G, in, out), with each adapter's update in them."""
    merged = []
    for adapter in adapters or [""]:
        weights = []
        for name in names:
            projection = base.get_submodule(name)
            update: Tensor | float = 0.0
            if isinstance(projection, LoraLinear):
                if adapter in projection.lora_A:
                    a_R_I = projection.lora_A[adapter].get_parameter("weight")
                    b_O_R = projection.lora_B[adapter].get_parameter("weight")
                    update = projection.scaling[adapter] * (b_O_R @ a_R_I)
                projection = projection.get_base_layer()
            assert isinstance(projection, nn.Linear)
            if projection.bias is not None:
                raise ValueError(
                    f"wanted projections without a bias, found one on {name}; sample from such a "
                    "model with transformers generate"
                )
            # Factors are float32 on any base; the sum is the base's, as the rest of the model.
            weights.append((projection.weight + update).to(projection.weight.dtype).T)
        merged.append(torch.cat(weights, dim=1))
    return torch.stack(merged)


def _check_adapters(base: nn.Module, adapters: Sequence[str]) -> None:
    """Raises ValueError where an adapter changes what `pack` does not merge, or nothing at all."""
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

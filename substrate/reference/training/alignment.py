"""How the gradient of a step's questions lies to the target's, block by block, and how large it is
beside what AdamW expects.

Before the first step of an adapter B is zero, so that A has no gradient: a cosine over all of it is
then one of B alone, which only the blocks show. Where squared gradients are far above the second
moment, AdamW's step is a sign, and a score says little about sizes.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from training.influence import SecondMoment

QUANTILES = (0.05, 0.5, 0.95)
MOST = 1 << 20  # parameters that quantiles are of, evenly spread: torch.quantile takes 2^24 at most


def alignment(
    gradient: Mapping[str, Tensor], target: Mapping[str, Tensor], moment: SecondMoment
) -> dict[str, Any]:
    """Metrics, by name. `cosines` are by block: a module's name with `.A` or `.B`, all layers in
    one; null where either gradient is zero there. `over_moment` has quantiles of g^2 / v', of the
    parameters whose bias-corrected second moment v' is above 0; null before the first step.
    """
    blocks: dict[str, list[str]] = {}
    for name in gradient:
        blocks.setdefault(block_of(name), []).append(name)
    return {
        "cosines": {
            block: _cosine(_row(gradient, names), _row(target, names))
            for block, names in sorted(blocks.items())
        },
        "over_moment": _over_moment(gradient, moment),
    }


def block_of(name: str) -> str:
    """`q_proj.A` of `…layers.3.self_attn.q_proj.lora_A.default.weight`."""
    module, _, factor = name.partition(".lora_")
    return f"{module.rpartition('.')[2]}.{factor[:1]}"


def _row(gradient: Mapping[str, Tensor], names: list[str]) -> Tensor:
    return torch.cat([gradient[name].flatten().double() for name in names])


def _cosine(one_P: Tensor, other_P: Tensor) -> float | None:
    lengths = one_P.norm() * other_P.norm()
    return (one_P @ other_P / lengths).item() if lengths > 0 else None


def _over_moment(gradient: Mapping[str, Tensor], moment: SecondMoment) -> dict[str, float] | None:
    if moment.steps == 0:
        return None
    values_P = _row(moment.values, [*gradient]) / (1 - moment.beta2**moment.steps)
    squares_P = _row(gradient, [*gradient]).square()[values_P > 0]
    if not len(squares_P):
        return None
    ratios_P = (squares_P / values_P[values_P > 0])[:: len(squares_P) // MOST + 1]
    found = torch.quantile(ratios_P, ratios_P.new_tensor(QUANTILES))
    return {
        f"{quantile:g}": value for quantile, value in zip(QUANTILES, found.tolist(), strict=True)
    }

"""A frozen linear module with the LoRA factors of many members, which takes rows of all at once.

The product with the frozen weight is one for all rows; each member's own factors then add their
part to its rows. PEFT has the like for inference only.

Shapes are suffixes: N tokens of all rows, I inputs and O outputs of the module, R rank, G members.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Span:
    """Consecutive tokens of one member."""

    member: int
    start: int
    stop: int


@dataclass
class Pass:
    """What is going through the model: set before, and the same for all of its modules."""

    tokens: int = 0
    spans: Sequence[Span] = field(default_factory=tuple)  # what is in none is the base's own


class StackedLora(nn.Module):
    """x W^T + scale * x A^T B^T, with A (R, I) and B (O, R) those of each token's member.

    On a base of half precision the factors stay in their own, and products are in the base's, as
    under autocast. A backward pass adds the factors' gradients to the tensors that are given for
    them, A's and B's: `.grad` would take a whole stack, mostly of zeros, for each pass.
    """

    def __init__(
        self,
        linear: nn.Linear,
        factors: tuple[nn.Parameter, nn.Parameter],
        gradients: tuple[Tensor, Tensor],
        scale: float,
        now: Pass,
    ) -> None:
        super().__init__()
        self.linear = linear
        self.a_G_R_I, self.b_G_O_R = factors
        self.scale = scale
        self._gradients = gradients
        self._now = now

    def forward(self, input_I: Tensor) -> Tensor:
        """Any shape in front of I. Raises ValueError unless it is that of the current pass."""
        tokens = input_I.shape[:-1].numel()
        if tokens != self._now.tokens:
            raise ValueError(
                f"wanted the {self._now.tokens} tokens of the rows, found {tokens}; run the model "
                "by its population, and adapt no module that sees some tokens only, as experts do"
            )
        output_O = _Product.apply(
            input_I,
            self.linear.weight,
            self.linear.bias,
            self.a_G_R_I,
            self.b_G_O_R,
            self._gradients,
            self.scale,
            self._now.spans,
        )
        assert isinstance(output_O, Tensor)
        return output_O


class _Product(torch.autograd.Function):
    """One node for the whole, so that each part is added in place."""

    @staticmethod
    def forward(
        ctx: Any,
        input_I: Tensor,
        weight_O_I: Tensor,
        bias_O: Tensor | None,
        a_G_R_I: Tensor,
        b_G_O_R: Tensor,
        gradients: tuple[Tensor, Tensor],
        scale: float,
        spans: Sequence[Span],
    ) -> Tensor:
        input_N_I = input_I.flatten(0, -2)
        output_N_O = F.linear(input_N_I, weight_O_I, bias_O)
        reduced_N_R = input_N_I.new_empty(len(input_N_I), a_G_R_I.shape[1])
        for span in spans:
            rows = slice(span.start, span.stop)
            a_R_I, b_O_R = a_G_R_I[span.member], b_G_O_R[span.member]
            torch.mm(input_N_I[rows], a_R_I.to(input_I.dtype).T, out=reduced_N_R[rows])
            output_N_O[rows].addmm_(reduced_N_R[rows], b_O_R.to(input_I.dtype).T, alpha=scale)
        ctx.save_for_backward(input_N_I, reduced_N_R, weight_O_I, a_G_R_I, b_G_O_R)
        ctx.gradients, ctx.scale, ctx.spans = gradients, scale, spans
        return output_N_O.view(*input_I.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        input_N_I, reduced_N_R, weight_O_I, a_G_R_I, b_G_O_R = ctx.saved_tensors
        delta_N_O = deltas[0].flatten(0, -2)
        input_gradient = delta_N_O @ weight_O_I if ctx.needs_input_grad[0] else None
        a_gradient_G_R_I, b_gradient_G_O_R = ctx.gradients
        for span in ctx.spans:
            rows = slice(span.start, span.stop)
            a_R_I = a_G_R_I[span.member].to(delta_N_O.dtype)
            b_O_R = b_G_O_R[span.member].to(delta_N_O.dtype)
            delta_N_R = ctx.scale * (delta_N_O[rows] @ b_O_R)
            a_gradient_G_R_I[span.member] += delta_N_R.T @ input_N_I[rows]
            b_gradient_G_O_R[span.member] += ctx.scale * (delta_N_O[rows].T @ reduced_N_R[rows])
            if input_gradient is not None:
                input_gradient[rows].addmm_(delta_N_R, a_R_I)
        if input_gradient is not None:
            input_gradient = input_gradient.view(*deltas[0].shape[:-1], -1)
        return input_gradient, *[None] * 7

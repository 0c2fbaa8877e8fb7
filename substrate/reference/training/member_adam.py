"""Adam for a population: each member has its own moments, step count, rate and clipped gradient."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from training.population import Population


class MemberAdam:
    """PyTorch's AdamW (Loshchilov and Hutter, arXiv 1711.05101), one for each member."""

    def __init__(
        self,
        population: Population,
        *,
        betas: tuple[float, float],
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        self._gradients_G_P = population.gradients_G_P
        self._rows: list[nn.Parameter] = []  # views, too
        self._adams: list[torch.optim.AdamW] = []
        for factors_P, gradient_P in zip(
            population.factors_G_P, population.gradients_G_P, strict=True
        ):
            row = nn.Parameter(factors_P)
            row.grad = gradient_P
            self._rows.append(row)
            self._adams.append(
                torch.optim.AdamW([row], betas=betas, eps=epsilon, weight_decay=weight_decay)
            )

    def step(self, rates: Sequence[float], *, clip_norm: float) -> list[float]:
        """Update each member with its gradient, scaled down to `clip_norm` where it is longer, at
        its learning rate; then set the gradients to 0. The norms before clipping.

        A member whose gradient is 0 since it had no rows stays as it is, moments too.
        """
        if len(rates) != len(self._rows):
            raise ValueError(f"wanted a rate for each of {len(self._rows)} members, found {rates}")
        norms = self._gradients_G_P.norm(dim=1).tolist()
        for row, adam, rate, norm in zip(self._rows, self._adams, rates, norms, strict=True):
            if norm == 0:
                continue
            nn.utils.clip_grad_norm_([row], clip_norm)
            adam.param_groups[0]["lr"] = rate
            adam.step()
        self._gradients_G_P.zero_()
        return norms

    def reset(self, member: int) -> None:
        """Forget a member's moments and steps, which belong to factors that are no more."""
        self._adams[member].state.clear()

    def state_dict(self) -> dict[str, Tensor]:
        """A copy of the moments and step counts of members that have some, by name."""
        return {
            f"{member}.{name}": value.clone()
            for member, adam in enumerate(self._adams)
            for name, value in adam.state.get(self._rows[member], {}).items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state_dict` gave; members that it does not have start anew."""
        for member in range(len(self._adams)):
            self.reset(member)
        for key, value in state.items():
            member, _, name = key.partition(".")
            row = self._rows[int(member)]
            place = "cpu" if name == "step" else row.device
            self._adams[int(member)].state[row][name] = value.to(place, copy=True)

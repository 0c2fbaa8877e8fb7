"""Muon (Jordan et al., 2024, kellerjordan.github.io/posts/muon): momentum made orthogonal.

Matrices of one shape are stacked and orthogonalised together, which on a CPU is several times
faster than one by one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the post's quintic Newton-Schulz step
STEPS = 5


class Muon(torch.optim.Optimizer):
    """SGD with Nesterov momentum whose update of each matrix has all singular values near 1."""

    def __init__(
        self, matrices: Iterable[torch.nn.Parameter], lr: float, momentum: float = 0.95
    ) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update. No closure is called: gradients are those of the last backward pass."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
            for matrix in group["params"]:
                by_shape[matrix.shape].append(matrix)
            for shape, matrices in by_shape.items():
                gradients = torch.stack([m.grad for m in matrices if m.grad is not None])
                momenta = []
                for matrix in matrices:
                    if "momentum" not in self.state[matrix]:
                        self.state[matrix]["momentum"] = torch.zeros_like(matrix)
                    momenta.append(self.state[matrix]["momentum"])
                stacked = torch.stack(momenta).lerp_(gradients, 1 - group["momentum"])
                for momentum, new in zip(momenta, stacked, strict=True):
                    momentum.copy_(new)
                updates = orthogonalise(gradients.lerp_(stacked, group["momentum"]))
                scale = max(1, shape[0] / shape[1]) ** 0.5
                for matrix, update in zip(matrices, updates, strict=True):
                    matrix.add_(update, alpha=-group["lr"] * scale)


def orthogonalise(matrices_N_R_C: torch.Tensor) -> torch.Tensor:
    """The nearest matrices with all singular values about 1, by Newton-Schulz iteration."""
    a, b, c = COEFFICIENTS
    x = matrices_N_R_C
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x

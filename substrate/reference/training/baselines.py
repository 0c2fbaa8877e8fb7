"""Advantages over baselines that reach beyond one prompt's group: REINFORCE++-baseline and
task-relative REINFORCE++.

Samples come in flat batches with labels, since groups differ in size and since members train side
by side: a label says which group a sample is compared with, or which member's and role's batch it
is scaled in. Nothing leaks from one batch into another. Everything is computed in float64, so that
a group of equal rewards gets 0 and not a rounding error over another.

Shapes are suffixes: N samples.
"""

import torch
from torch import Tensor

EPSILON = 1e-8  # keeps a batch of equal values finite; REINFORCE++'s own


def reinforce_plus_baseline(
    rewards_N: Tensor, groups_N: Tensor, batches_N: Tensor, tokens_N: Tensor | None = None
) -> Tensor:
    """Rewards minus their group's mean, then whitened over the batch, (N,), float32:
    REINFORCE++-baseline (Hu et al., arXiv 2501.03262).

    `groups_N` labels the samples of one prompt (or of one teacher and task type), `batches_N` those
    of one adapter in one role, whole groups each. A group of one sample, or of equal rewards, gets
    0. With `tokens_N`, the number of tokens of each sample, samples weigh as much as they have
    tokens when the batch is whitened, as in verl; without, all alike.
    """
    return _whitened(_centred(rewards_N, groups_N), batches_N, tokens_N)


def centred(rewards_N: Tensor, groups_N: Tensor, batches_N: Tensor) -> Tensor:
    """Rewards minus their group's mean, (N,), float32: Dr.GRPO's advantages (Liu et al., arXiv
    2503.20783) for groups of any size. Nothing is scaled: a batch of small differences stays one.
    """
    return _centred(rewards_N, groups_N).float()


def task_relative(rewards_N: Tensor, tasks_N: Tensor, tokens_N: Tensor | None = None) -> Tensor:
    """Rewards minus the mean of their task and role, over its standard deviation, (N,), float32:
    task-relative REINFORCE++, of Absolute Zero (Zhao et al., arXiv 2505.03335).

    `tasks_N` labels the samples of one adapter in one role on one type of task. Equal rewards get
    0. `tokens_N` as in `reinforce_plus_baseline`.
    """
    return _whitened(rewards_N.double(), tasks_N, tokens_N)


def _centred(rewards_N: Tensor, groups_N: Tensor) -> Tensor:
    rewards_N = rewards_N.double()
    return rewards_N - _mean(rewards_N, groups_N, torch.ones_like(rewards_N))


def _whitened(values_N: Tensor, labels_N: Tensor, tokens_N: Tensor | None) -> Tensor:
    """Values to mean 0 and standard deviation 1 within each label; the variance is unbiased."""
    weights_N = torch.ones_like(values_N) if tokens_N is None else tokens_N.double()
    centred_N = values_N - _mean(values_N, labels_N, weights_N)
    counts_N = _total(weights_N, labels_N)
    variances_N = _total(weights_N * centred_N**2, labels_N) / (counts_N - 1).clamp(min=1)
    return (centred_N / (variances_N.sqrt() + EPSILON)).float()


def _mean(values_N: Tensor, labels_N: Tensor, weights_N: Tensor) -> Tensor:
    """For each sample the weighted mean of its label."""
    return _total(weights_N * values_N, labels_N) / _total(weights_N, labels_N)


def _total(values_N: Tensor, labels_N: Tensor) -> Tensor:
    """For each sample the sum over its label."""
    labels, places_N = labels_N.unique(return_inverse=True)
    return values_N.new_zeros(len(labels)).index_add(0, places_N, values_N)[places_N]

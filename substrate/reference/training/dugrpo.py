"""DuGRPO, the generator's advantages in INFUSER (arXiv 2606.09052), and the forms it was compared
with, as the authors' code has them.

A group is the completions about one document. GRPO divides by the group's own deviation, so that a
group of next to equal scores pushes as hard as any; DuGRPO adds the deviation that groups have on
average, by which quiet groups push little and loud ones no more than half as hard.

All are functions of the rewards and the labels of their groups, in float64; deviations divide by
the number less 1. Shapes are suffixes: N samples.
"""

import torch
from torch import Tensor

EPSILON = 1e-6  # theirs


def dugrpo(rewards_N: Tensor, groups_N: Tensor) -> Tensor:
    """(s - mean) / (group's deviation + mean of those that are not 0 + epsilon), (N,)."""
    return centred(rewards_N, groups_N) / scale(rewards_N, groups_N)


def by_group(rewards_N: Tensor, groups_N: Tensor) -> Tensor:
    """(s - mean) / (group's deviation + epsilon), (N,): GRPO (Shao et al., arXiv 2402.03300)."""
    return centred(rewards_N, groups_N) / (_deviations(rewards_N, groups_N) + EPSILON)


def by_batch(rewards_N: Tensor, groups_N: Tensor) -> Tensor:
    """(s - mean) / (deviation of all centred scores + epsilon), (N,)."""
    centred_N = centred(rewards_N, groups_N)
    deviation = centred_N.std() if len(centred_N) > 1 else centred_N.new_zeros(())
    return centred_N / (deviation + EPSILON)


def centred(rewards_N: Tensor, groups_N: Tensor) -> Tensor:
    """s - mean, (N,): Dr.GRPO (Liu et al., arXiv 2503.20783)."""
    rewards_N = rewards_N.double()
    return rewards_N - _mean(rewards_N, groups_N)


def scale(rewards_N: Tensor, groups_N: Tensor) -> Tensor:
    """What DuGRPO divides by, (N,). It is one number in a group: rewards that are divided by it
    beforehand have DuGRPO's advantages where they are only centred, as TRL does.
    """
    deviations_N = _deviations(rewards_N, groups_N)
    first = torch.stack([deviations_N[groups_N == group][0] for group in groups_N.unique()])
    loud = first[first > 0]
    typical = loud.mean() if len(loud) else deviations_N.new_zeros(())
    return deviations_N + typical + EPSILON


def _deviations(rewards_N: Tensor, groups_N: Tensor) -> Tensor:
    centred_N = centred(rewards_N, groups_N)
    counts_N = _total(torch.ones_like(centred_N), groups_N)
    deviations_N = (_total(centred_N**2, groups_N) / (counts_N - 1).clamp(min=1)).sqrt()
    # Equal rewards whose mean is rounded have no deviation.
    return torch.where(deviations_N > 1e-12 * rewards_N.abs().double(), deviations_N, 0.0)


def _mean(values_N: Tensor, labels_N: Tensor) -> Tensor:
    return _total(values_N, labels_N) / _total(torch.ones_like(values_N), labels_N)


def _total(values_N: Tensor, labels_N: Tensor) -> Tensor:
    """For each sample the sum over its label."""
    labels, places_N = labels_N.unique(return_inverse=True)
    return values_N.new_zeros(len(labels)).index_add(0, places_N, values_N)[places_N]


FORMS = {"dugrpo": dugrpo, "group": by_group, "batch": by_batch, "none": centred}

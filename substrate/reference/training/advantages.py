"""Advantages: how much better a completion is than the others of its group, from their rewards.

Shapes are suffixes: P prompts, G completions of each.
"""

from torch import Tensor

EPSILON = 1e-4  # keeps a group of equal rewards finite; the value of TRL's GRPOTrainer


def dr_grpo(rewards_P_G: Tensor) -> Tensor:
    """Reward minus the group's mean, (P, G): Dr.GRPO (Liu et al., arXiv 2503.20783, section 3.2).

    Unlike `grpo`, groups in which rewards hardly differ weigh little.
    """
    return rewards_P_G - rewards_P_G.mean(dim=-1, keepdim=True)


def grpo(rewards_P_G: Tensor) -> Tensor:
    """Reward minus the group's mean, over the group's standard deviation, (P, G): GRPO (Shao et
    al., arXiv 2402.03300, section 4.1.2).

    The standard deviation divides by G - 1, as TRL's does. A group of equal rewards gets 0.
    """
    return dr_grpo(rewards_P_G) / (rewards_P_G.std(dim=-1, keepdim=True) + EPSILON)

"""The policy-gradient loss of group-based methods, and the log-probabilities that it is made of.

Shapes are suffixes: P prompts, G completions of each, T tokens of a completion, V vocabulary.
"""

import torch
from torch import Tensor


def clipped_loss(
    logprobs_P_G_T: Tensor,
    old_logprobs_P_G_T: Tensor,
    advantages_P_G: Tensor,
    mask_P_G_T: Tensor,
    *,
    normaliser: float,
    epsilon: float = 0.2,
) -> Tensor:
    """The clipped surrogate loss (Schulman et al., arXiv 1707.06347, equation 7), a scalar.

    The old log-probabilities are those of the policy that sampled; on the first step after
    sampling, `logprobs_P_G_T.detach()`. The mask is 1 for the tokens that count, 0 for padding. The
    sum over tokens is divided by `normaliser`: for Dr.GRPO the constant number of completions times
    the longest completion allowed (Liu et al., arXiv 2503.20783, appendix A), so that a token
    weighs the same in a long completion as in a short one. Groups whose advantages are 0 may be
    left out without a change, as long as the normaliser stays.
    """
    ratio_P_G_T = (logprobs_P_G_T - old_logprobs_P_G_T).exp()
    clipped_P_G_T = ratio_P_G_T.clamp(1 - epsilon, 1 + epsilon)
    advantages_P_G_1 = advantages_P_G[..., None]
    gain_P_G_T = torch.minimum(ratio_P_G_T * advantages_P_G_1, clipped_P_G_T * advantages_P_G_1)
    return -(gain_P_G_T * mask_P_G_T).sum() / normaliser


def token_logprobs(
    logits_P_G_T_V: Tensor, tokens_P_G_T: Tensor, temperature: float = 1.0
) -> Tensor:
    """Log-probabilities (P, G, T) of tokens, at the temperature that they were sampled at.

    The logits at T are those that predict the token at T: the model's output one position earlier.
    """
    logprobs_P_G_T_V = (logits_P_G_T_V.float() / temperature).log_softmax(-1)
    return logprobs_P_G_T_V.gather(-1, tokens_P_G_T[..., None])[..., 0]

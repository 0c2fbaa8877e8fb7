"""pass@k: the chance that one of k attempts at a problem is right, or more of them."""

from collections.abc import Sequence
from math import comb
from statistics import fmean


def mean_pass_at(attempts: int, right: Sequence[int]) -> dict[str, float]:
    """The mean of pass@k over problems, each with so many right attempts, for k of 1, 2, 4 and so
    on up to all. Of no problems there is none.
    """
    if not right:
        return {}
    ks = [2**n for n in range(attempts.bit_length())]
    return {str(k): fmean(pass_at(k, attempts, solved) for solved in right) for k in ks}


def pass_at(k: int, attempts: int, right: int) -> float:
    """The chance that of k attempts, drawn from these without replacement, one is right or more:
    the unbiased estimate (Chen et al., arXiv 2107.03374, eq. 1).
    """
    return 1 - comb(attempts - right, k) / comb(attempts, k)

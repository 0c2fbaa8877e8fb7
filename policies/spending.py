"""Spending: how a campaign's budget of errors is shared among the tests that it happens to make.

The budget bounds the chance of one false finding in a campaign of any length. The j-th test that is
begun is given `level(j)` of it; over all j these add up to 1 (Bonferroni's bound; alpha spending
without a horizon). What a true finding was given is not lost: the next test inherits it (the
fallback procedure of B. L. Wiens, Pharm. Stat. 2, 2003; online in J. Tian and A. Ramdas, Stat.
Methods Med. Res. 30, 2021, arXiv:1910.04900). Whatever passes on comes from a test that found
something, so that the shares of tests in which there is nothing to find never exceed the budget.

A test that is looked at again as runs come in shares what it was given among its looks (after
K. K. G. Lan and D. L. DeMets, Biometrika 70, 1983, with Bonferroni's bound in place of the joint
law): a little less for the first, when there is little to see, then less and less.
"""

BUDGET = 0.05  # chance of one false finding in a campaign


def level(test: int, *, half: int) -> float:
    """The share of the budget of the `test`-th test, from 1 on; in all 1, half of it in `half`."""
    return half / ((test + half - 1) * (test + half))


def look(number: int) -> float:
    """The share of a test's level that its look `number`, from 1 on, may use; in all 1."""
    return number / 2 ** (number + 1)

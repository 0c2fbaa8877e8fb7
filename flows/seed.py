"""Seeds: every random number of a campaign comes from one of these."""

import hashlib

# 53 bits survive JSON readers that keep numbers as doubles.
SEED_BITS = 53


def derive_seed(campaign_seed: int, *parts: int | str) -> int:
    """The seed of one part of a campaign: sha256 over the campaign's seed and the part's name.

    The same for every attempt, so that a trial that is tried again gives the same result.
    """
    text = "/".join(str(part) for part in (campaign_seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()) >> (256 - SEED_BITS)

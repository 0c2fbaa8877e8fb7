"""What the generator earns for its completions, document by document."""

import math
from collections.abc import Mapping, Sequence
from statistics import pstdev

from training.questions import Question, Reason


def taught_rewards(
    found: Sequence[Question | Reason], worths: Mapping[str, float], *, size: int, margin: float
) -> dict[int, float]:
    """Rewards by the completion's place, of documents that teach something; each document has
    `size` completions, one document behind another.

    A document teaches where its valid questions differ in worth. If it did where they are worth the
    same, a generator whose questions have no influence would learn to write easy ones, which are
    valid. `margin` is in standard deviations of those worths.
    """
    rewards: dict[int, float] = {}
    for start in range(0, len(found), size):
        group = found[start : start + size]
        spread = pstdev([worths[one.id] for one in group if isinstance(one, Question)] or [0.0])
        if spread > 0:
            earned = group_rewards(group, worths, margin=margin * spread)
            rewards |= dict(enumerate(earned, start))
    return rewards


def group_rewards(
    found: Sequence[Question | Reason], scores: Mapping[str, float], *, margin: float
) -> list[float]:
    """A reward for each completion of a document's group, from the influence scores by question id.

    A valid question earns its score. One that all answers got right, or all wrong, has no score and
    earns 0. What is no question, an opt-out too, earns `margin` less than the least of the others:
    earning 0, as published, it would be worth more than a question that scored below 0. Rewards
    matter by their differences within the group, so that a margin of about the scores' standard
    deviation refuses without drowning them. A group without a valid question earns -`margin`
    throughout, and teaches nothing.

    Raises ValueError for a margin that is not above 0 and for a score that is not finite.
    """
    if not 0 < margin < math.inf:
        raise ValueError(f"wanted a margin above 0, found {margin}")
    valid = {one.id: scores.get(one.id, 0.0) for one in found if isinstance(one, Question)}
    if not all(map(math.isfinite, valid.values())):
        raise ValueError(f"wanted finite scores, found {list(valid.values())}; see the gradients")
    least = min(valid.values(), default=0.0)
    # However small the margin is beside the scores, it must be felt.
    invalid = min(least - margin, math.nextafter(least, -math.inf))
    return [valid[one.id] if isinstance(one, Question) else invalid for one in found]

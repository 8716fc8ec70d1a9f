"""Compares two arms of a measurement."""

import math
import random
import statistics

SEED = 1
RESAMPLES = 4000


def ratio(arm: list[float], base: list[float]) -> tuple[float, float, float]:
    """Returns the geometric mean of the rounds' ratios, and a bootstrap interval of 95 %. Raises ValueError
    if a round lacks a figure, because the claim would then cover fewer rounds than it states."""
    if not arm or len(arm) != len(base) or not all(value > 0 for value in (*arm, *base)):
        raise ValueError(f"expected a figure above 0 of each round, found {arm} and {base}")
    logs = [math.log(a / b) for a, b in zip(arm, base, strict=True)]
    generator = random.Random(SEED)
    means = sorted(statistics.mean(generator.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]
    return math.exp(statistics.mean(logs)), math.exp(low), math.exp(high)

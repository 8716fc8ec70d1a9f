"""What two arms of a measurement differ by."""

import math
import random
import statistics

SEED = 1
RESAMPLES = 4000


def ratio(arm: list[float], base: list[float]) -> tuple[float, float, float]:
    """The geometric mean of the rounds' ratios, and a bootstrap interval of 95 %."""
    logs = [math.log(a / b) for a, b in zip(arm, base) if a > 0 and b > 0]
    generator = random.Random(SEED)
    means = sorted(statistics.mean(generator.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]
    return math.exp(statistics.mean(logs)), math.exp(low), math.exp(high)

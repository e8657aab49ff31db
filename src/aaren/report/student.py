"""Student's t distribution in plain Python, so that a report needs no statistics package.

Through the regularised incomplete beta function, by its continued fraction (modified Lentz); good to about
twelve digits for the few degrees of freedom that seeds give.
"""

import math

_TINY = 1e-300
_MOST_TERMS = 500


def cdf(value: float, degrees: float) -> float:
    """Return P(T <= value) for T with so many degrees of freedom.

    >>> round(cdf(2.132, 4), 4), cdf(0.0, 3)
    (0.95, 0.5)
    """
    if math.isinf(value):
        return 1.0 if value > 0 else 0.0
    tail = 0.5 * _beta(degrees / (degrees + value * value), 0.5 * degrees, 0.5)
    return 1.0 - tail if value > 0 else tail


def quantile(probability: float, degrees: float) -> float:
    """Return the value below which T stays with a probability above 0 and below 1.

    >>> round(quantile(0.95, 4), 3), round(quantile(0.95, 1), 3)
    (2.132, 6.314)
    """
    if probability < 0.5:
        return -quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while cdf(high, degrees) < probability:
        high *= 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def _beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # where the fraction converges slowly, its mirror image does not
        return 1.0 - _beta(1.0 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    product = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            product *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return product


def _away_from_zero(number: float) -> float:
    return number if abs(number) > _TINY else _TINY

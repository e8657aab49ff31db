"""Draw a section's lines as a small SVG picture, in the page's own colours; no library needed."""

import math
from collections.abc import Sequence
from html import escape

from aaren.demo.tasks import Line

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 260, 62, 40, 14, 14
COLOURS = ("var(--second)", "var(--first)", "var(--third)")


def draw(lines: Sequence[Line], axes: tuple[str, str]) -> str:
    """Return the picture as text of SVG, which takes its colours from the page around it."""
    xs = [x for line in lines for x in line.x]
    ys = [y for line in lines for part in (line.y, line.low or (), line.high or ()) for y in part]
    left, right = min(xs), max(xs)
    ups, acrosses = _ticks(min(0.0, *ys), max(ys)), _ticks(left, right)
    low, high = min(ups[0], *ys), max(ups[-1], *ys)

    def place(x: float, y: float) -> str:
        across = LEFT + (x - left) / (right - left or 1.0) * (WIDTH - LEFT - RIGHT)
        up = HEIGHT - BOTTOM - (y - low) / (high - low or 1.0) * (HEIGHT - BOTTOM - TOP)
        return f"{across:.1f},{up:.1f}"

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(axes[1])} against {escape(axes[0])}">'
    ]
    for y in ups:
        begin, end = place(left, y), place(right, y)
        parts.append(f'<polyline class="grid" points="{begin} {end}"/>')
        parts.append(_text(f"{y:,.6g}", begin, "end", -6, 4))
    parts += [_text(f"{x:,.6g}", place(x, low), "middle", 0, 16) for x in acrosses if left <= x <= right]
    parts.append(_text(axes[0], place((left + right) / 2, low), "middle", 0, 34))
    for line, colour in zip(lines, COLOURS, strict=False):
        if line.low and line.high:
            there = [place(x, y) for x, y in zip(line.x, line.high, strict=True)]
            back = [place(x, y) for x, y in zip(reversed(line.x), reversed(line.low), strict=True)]
            parts.append(f'<polygon points="{" ".join(there + back)}" fill="{colour}" opacity="0.2"/>')
        points = " ".join(place(x, y) for x, y in zip(line.x, line.y, strict=True))
        parts.append(f'<polyline class="line" points="{points}" stroke="{colour}"/>')
    legend = [
        f'<tspan fill="{colour}">{"&#8195;" * bool(index)}{escape(line.name)}</tspan>'
        for index, (line, colour) in enumerate(zip(lines, COLOURS, strict=False))
    ]
    parts.append(f'<text x="{LEFT + 8}" y="{TOP + 10}" class="legend">{"".join(legend)}</text>')
    return "".join([*parts, "</svg>"])


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers from one not above `low` to one not below `high`, four to eight of them.

    >>> _ticks(0.0, 668.1), _ticks(10.0, 100.0)
    ([0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0], [0.0, 20.0, 40.0, 60.0, 80.0, 100.0])
    """
    size = 10.0 ** math.floor(math.log10((high - low) or 1.0))
    step = next(size * part for part in (0.1, 0.2, 0.5, 1.0, 2.0) if (high - low) / (size * part) <= 7.0)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def _text(words: str, at: str, anchor: str, right: float, down: float) -> str:
    x, y = (float(part) for part in at.split(","))
    return f'<text x="{x + right:.1f}" y="{y + down:.1f}" text-anchor="{anchor}">{escape(words)}</text>'

"""Draw a section's lines as a small SVG picture, in the page's own colours; no library needed."""

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
    low, high = min(0.0, *ys), max(ys) * 1.05

    def place(x: float, y: float) -> str:
        across = LEFT + (x - left) / (right - left or 1.0) * (WIDTH - LEFT - RIGHT)
        up = HEIGHT - BOTTOM - (y - low) / (high - low or 1.0) * (HEIGHT - BOTTOM - TOP)
        return f"{across:.1f},{up:.1f}"

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(axes[1])} against {escape(axes[0])}">'
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y, x = low + share * (high - low), left + share * (right - left)
        begin, end = place(left, y), place(right, y)
        parts.append(f'<polyline class="grid" points="{begin} {end}"/>')
        parts.append(_text(f"{y:,.4g}", begin, "end", -6, 4))
        parts.append(_text(f"{x:,.6g}", place(x, low), "middle", 0, 16))
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


def _text(words: str, at: str, anchor: str, right: float, down: float) -> str:
    x, y = (float(part) for part in at.split(","))
    return f'<text x="{x + right:.1f}" y="{y + down:.1f}" text-anchor="{anchor}">{escape(words)}</text>'

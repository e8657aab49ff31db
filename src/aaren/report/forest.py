"""The verdict in one figure: a forest plot of all datasets and of the pooled estimates, in margins, as SVG.

Plain SVG without a library: the page shows it inline, in the colours of its theme; a README shows the file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from aaren.lab.margins import WORDS
from aaren.lab.statistics import Interval, Outcome, interval_over_rows, judge
from aaren.report.comparison import COLOURS, Comparison
from aaren.report.names import short_title_of
from aaren.report.verdict import SettingPool, show_margins

REACH = 3.0  # margins on either side; what lies beyond is cut off with an arrow
WIDTH, LABEL, PAIRS, NUMBERS = 620, 190, 30, 150  # of a panel, of its names, of its columns of numbers
ROW, HEAD, FOOT = 17, 24, 32  # heights
GAP = 24  # between panels
# Colours of a file on its own; the page has the same names.
_THEME = """
svg.forest { --paper: #ffffff; --ink: #1c1d1f; --muted: #6a6f76; --line: #d5d8dc; --good: #23784a;
  --bad: #b3261e; --band: rgba(35, 120, 74, 0.12); background: var(--paper); }
@media (prefers-color-scheme: dark) { svg.forest { --paper: #131518; --ink: #e7e8ea; --muted: #9aa1a9;
  --line: #3a3f46; --good: #6cc594; --bad: #f28b82; --band: rgba(108, 197, 148, 0.15); } }
"""
STYLE = """
svg.forest text { font: 11px system-ui, -apple-system, Roboto, Arial, sans-serif; fill: var(--ink); }
svg.forest .head { font-weight: 600; font-size: 12.5px; }
svg.forest .small { fill: var(--muted); font-size: 10.5px; font-weight: 400; }
svg.forest .number { text-anchor: end; font-variant-numeric: tabular-nums; }
svg.forest .pooled { font-weight: 600; }
svg.forest .centre { text-anchor: middle; }
svg.forest .band { fill: var(--band); }
svg.forest .axis { stroke: var(--line); fill: none; }
svg.forest .good { stroke: var(--good); fill: var(--good); }
svg.forest .bad { stroke: var(--bad); fill: var(--bad); }
svg.forest .muted { stroke: var(--muted); fill: var(--muted); }
svg.forest .hollow { fill: var(--paper); }
svg.forest .whisker, svg.forest circle { stroke-width: 1.6; }
"""
CAPTION = (
    "Aaren's advantage over the Transformer in margins, by dataset: right of 0 Aaren is better, and inside "
    f"the band a difference would not matter ({WORDS}). Lines are 90 % intervals over seeds, horizons of a "
    "dataset averaged; a hollow dot has one seed of some horizon; an arrow leads out of the picture. "
    "Diamonds pool the datasets of a setting (random effects). Pairs: runs of both models with the same "
    "seed, of all horizons."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    label: str
    advantage: Interval  # in margins
    outcome: Outcome
    pairs: int  # of runs
    is_pooled: bool = False


def panels(pools: Sequence[SettingPool]) -> list[str]:
    """Draw one SVG per setting, for the page, which has its style (`STYLE`) and colours."""
    return [_document([one], columns=1, style="") for one in pools]


def picture(pools: Sequence[SettingPool]) -> str:
    """Draw all settings in one SVG file, two beside each other."""
    return _document(pools, columns=2 if len(pools) > 1 else 1, style=_THEME + STYLE)


def dataset_interval(rows: Sequence[Comparison]) -> Interval:
    """Return a dataset's advantage in margins: its horizons averaged, with an interval over seeds.

    Where they have fewer than two seeds in common it has no interval.
    """
    return interval_over_rows([dict(zip(row.differences, row.in_margins, strict=True)) for row in rows])


def _lines(one: SettingPool) -> list[_Line]:
    profiles = {row.key.profile for row in one.comparisons}
    found = []
    for dataset, rows in one.by_dataset.items():
        advantage = dataset_interval(rows)
        marks = [rows[0].key.profile] * (len(profiles) > 1) + [rows[0].key.remark] * bool(rows[0].key.remark)
        label = f"{dataset} ({', '.join(marks)})" if marks else dataset
        pairs = sum(len(row.differences) for row in rows)
        found.append(_Line(label=label, advantage=advantage, outcome=judge(advantage, 1.0), pairs=pairs))
    if one.pooled is not None:
        label = f"all {one.pooled.interval.count} datasets"
        found.append(
            _Line(
                label=label,
                advantage=one.pooled.interval,
                outcome=one.outcome,
                pairs=one.pooled.seeds,
                is_pooled=True,
            )
        )
    return found


def _document(pools: Sequence[SettingPool], *, columns: int, style: str) -> str:
    """Lay panels out, each in the column that is the shortest so far."""
    ends = [0.0] * columns
    parts = []
    for one in pools:
        column = ends.index(min(ends))
        body, height = _panel(one)
        parts.append(f'<g transform="translate({column * (WIDTH + GAP)} {ends[column]:g})">{body}</g>')
        ends[column] += height + GAP
    width, height = columns * WIDTH + (columns - 1) * GAP, max(ends) - GAP if pools else 0.0
    title = "Aaren's advantage over the Transformer, in margins"
    return (
        f'<svg class="forest" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" role="img" '
        f'aria-label="{escape(title)}"><style>{style}</style>{"".join(parts)}</svg>\n'
    )


def _panel(one: SettingPool) -> tuple[str, float]:
    lines = _lines(one)
    top, bottom = HEAD, HEAD + ROW * len(lines)
    profiles = " and ".join(dict.fromkeys(row.key.profile for row in one.comparisons))
    parts = [
        f'<text class="head" x="0" y="15">{escape(short_title_of(one.setting))}'
        f'<tspan class="small" dx="6">{escape(f"{one.label}, profile {profiles}")}</tspan></text>',
        f'<text class="small number" x="{WIDTH - NUMBERS}" y="15">pairs</text>'
        f'<text class="small number" x="{WIDTH}" y="15">advantage [90 %]</text>',
        f'<rect class="band" x="{_x(-1.0):g}" y="{top}" width="{_x(1.0) - _x(-1.0):g}" '
        f'height="{bottom - top}"/>',
        f'<path class="axis" d="M{_x(0.0):g} {top}V{bottom}M{_x(-REACH):g} {bottom}H{_x(REACH):g}"/>',
    ]
    for tick in range(-int(REACH), int(REACH) + 1):
        label = f"{tick:+d}".replace("-", "\u2212") if tick else "0"
        parts.append(f'<path class="axis" d="M{_x(tick):g} {bottom}v4"/>')
        parts.append(f'<text class="small centre" x="{_x(tick):g}" y="{bottom + 15}">{label}</text>')
    for text, x in (("Transformer better", _x(-REACH / 2)), ("Aaren better", _x(REACH / 2))):
        parts.append(f'<text class="small centre" x="{x:g}" y="{bottom + 28}">{text}</text>')
    parts += [_drawn(line, top + ROW * (index + 0.5)) for index, line in enumerate(lines)]
    return "".join(parts), bottom + FOOT


def _drawn(line: _Line, y: float) -> str:
    advantage, colour = line.advantage, COLOURS[line.outcome]
    x = _x(max(-REACH, min(REACH, advantage.mean)))
    weight = " pooled" if line.is_pooled else ""
    numbers = show_margins(advantage)
    parts = [
        f"<title>{escape(line.label)}: {numbers} margins</title>",
        f'<text class="{weight.strip()}" x="0" y="{y + 4:g}">{escape(line.label)}</text>',
        f'<text class="number{weight}" x="{WIDTH - NUMBERS}" y="{y + 4:g}">{line.pairs}</text>',
        f'<text class="number{weight}" x="{WIDTH}" y="{y + 4:g}">{numbers}</text>',
    ]
    ends = [advantage.mean]
    if advantage.low is not None and advantage.high is not None:
        ends += [advantage.low, advantage.high]
        left, right = (_x(max(-REACH, min(REACH, end))) for end in ends[1:])
        shape = f"M{left:.1f} {y:g}H{right:.1f}"
        if line.is_pooled:
            shape = f"M{left:.1f} {y:g}L{x:.1f} {y - 5:g}L{right:.1f} {y:g}L{x:.1f} {y + 5:g}Z"
        parts.append(f'<path class="{colour} whisker" d="{shape}"/>')
    if not line.is_pooled and abs(advantage.mean) <= REACH:
        hollow = " hollow" if advantage.is_open else ""
        parts.append(f'<circle class="{colour}{hollow}" cx="{x:.1f}" cy="{y:g}" r="3.4"/>')
    for sign in (1, -1):
        if max(sign * end for end in ends) > REACH:
            tip = _x(sign * REACH) + sign * 6
            parts.append(f'<path class="{colour}" d="M{tip:.1f} {y:g}l{-sign * 7} -4v8Z"/>')
    return f"<g>{''.join(parts)}</g>"


def _x(margins: float) -> float:
    available = WIDTH - LABEL - PAIRS - NUMBERS - 24
    return LABEL + 12 + available * (margins + REACH) / (2 * REACH)

"""The picture of the verdict: every difference with its interval, in units of the paper's margin."""

from aaren.engine.experiment import Json
from aaren.report.comparison import Comparison
from aaren.report.figure import BAD, GOOD, MUTED, Figure, View, axis, short
from aaren.report.gathered import Gathered
from aaren.report.names import SHORT
from aaren.report.tables import OUTCOMES
from aaren.report.verdict import first_comparisons

_COLOURS = {"equivalent": GOOD, "better": GOOD, "worse": BAD, "undecided": MUTED, "untested": MUTED}
_ROW_PIXELS = 20
_FURTHEST = 4.0  # margins: beyond, an interval runs out of the picture and its end is in the table


def margin_figure(gathered: Gathered) -> Figure | None:
    """Draw one view per setting, profile and number that has a margin."""
    views, firsts = [], [one for one in first_comparisons(gathered) if one.margin]
    for profile in dict.fromkeys(one.place.profile for one in firsts):
        views.append(
            _view(f"All settings, {profile}", [one for one in firsts if one.place.profile == profile])
        )
    for setting in gathered.settings():
        for profile in gathered.profiles(setting):
            for number in gathered.metrics(setting):
                found = [
                    one
                    for variant in gathered.variants(setting, profile)
                    for one in gathered.compare(setting, profile, variant, number)
                    if one.advantage is not None and one.margin
                ]
                if found:
                    views.append(_view(f"{SHORT.get(setting, setting)}, {number.label}, {profile}", found))
    if not views:
        return None
    return Figure(
        name="margins",
        title="Is Aaren within the paper's margin?",
        caption=(
            "Aaren's advantage over the Transformer (right: Aaren is better), divided by the margin: the sum "
            "of both published deviations. Bars are 90 % intervals over seeds; inside the band, equivalence "
            "is shown at 5 %. A hollow dot is one seed: no interval."
        ),
        views=views,
    )


def _view(label: str, found: list[Comparison]) -> View:
    data: list[Json] = []
    rows = list(reversed(found))
    for outcome, colour in _COLOURS.items():
        chosen = [(place, one) for place, one in enumerate(rows) if one.outcome == outcome]
        if chosen:
            data.append(_trace(outcome, colour, chosen))
    extent = max([1.5, *(min(_FURTHEST, _reach(one)) for one in rows)]) * 1.05
    return View(
        label=label,
        data=data,
        layout={
            "showlegend": True,
            "height": 150 + _ROW_PIXELS * len(rows),
            "xaxis": axis("advantage of Aaren, in margins", range=[-extent, extent], zeroline=True),
            "yaxis": {
                "tickmode": "array",
                "tickvals": list(range(len(rows))),
                "ticktext": [_label(one) for one in rows],
                "range": [-0.7, len(rows) - 0.3],
                "showgrid": False,
                "zeroline": False,
                "automargin": True,
            },
            "shapes": [
                {
                    "type": "rect",
                    "xref": "x",
                    "yref": "paper",
                    "x0": -1,
                    "x1": 1,
                    "y0": 0,
                    "y1": 1,
                    "fillcolor": "@band",
                    "line": {"width": 0},
                    "layer": "below",
                }
            ],
        },
    )


def _trace(outcome: str, colour: str, chosen: list[tuple[int, Comparison]]) -> Json:
    centres, above, below, texts, symbols = [], [], [], [], []
    for _, one in chosen:
        advantage, margin = one.advantage, one.margin
        assert advantage is not None
        assert margin is not None
        centres.append(short(max(-_FURTHEST, min(_FURTHEST, advantage.mean / margin))))
        has_interval = advantage.low is not None and advantage.high is not None
        above.append(short((advantage.high - advantage.mean) / margin) if advantage.high is not None else 0.0)
        below.append(short((advantage.mean - advantage.low) / margin) if advantage.low is not None else 0.0)
        symbols.append("circle" if has_interval else "circle-open")
        seeds = f"{advantage.count} seed{'s' if advantage.count > 1 else ''}"
        texts.append(f"{_label(one)}: {one.metric.show(advantage.mean, signed=True)}, {seeds}")
    return {
        "type": "scatter",
        "mode": "markers",
        "name": OUTCOMES[outcome],
        "x": list(centres),
        "y": [place for place, _ in chosen],
        "text": list(texts),
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "color": colour,
            "size": 9,
            "symbol": list(symbols),
            "line": {"width": 2, "color": colour},
        },
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": list(above),
            "arrayminus": list(below),
            "color": colour,
            "thickness": 1.6,
            "width": 3,
        },
    }


def _label(one: Comparison) -> str:
    return f"{one.place.name} ({one.place.variant})" if one.place.variant else one.place.name


def _reach(one: Comparison) -> float:
    advantage, margin = one.advantage, one.margin
    assert advantage is not None
    assert margin is not None
    ends = [end for end in (advantage.low, advantage.high, advantage.mean) if end is not None]
    return max(abs(end) for end in ends) / margin

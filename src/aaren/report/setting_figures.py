"""All figures of one setting, in the order of the page."""

from collections.abc import Callable

from aaren.report.earliness_figure import earliness
from aaren.report.event_figures import bands, calibration
from aaren.report.figure import Figure
from aaren.report.forecast_figure import forecasts
from aaren.report.gathered import Gathered
from aaren.report.learning_figure import learning_curves
from aaren.report.policy_figures import contexts, return_conditioning

_DRAWERS: dict[str, list[Callable[[Gathered], Figure | None]]] = {
    "forecasting": [forecasts],
    "classification": [earliness],
    "events": [calibration, bands],
    "rl": [return_conditioning, contexts],
}


def setting_figures(gathered: Gathered, setting: str) -> list[Figure]:
    """Draw all that there is of a setting; what was not kept beside the records is not drawn."""
    found = [drawer(gathered) for drawer in _DRAWERS.get(setting, [])]
    return [figure for figure in (*found, learning_curves(gathered, setting)) if figure is not None]

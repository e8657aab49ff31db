"""What is known of a grid while it runs: every run's state, and how long the rest will take.

Holds facts only; views show them and the scheduler changes them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from aaren.lab.planning import PlannedRun

State: TypeAlias = Literal["waiting", "running", "finished", "failed", "stopped"]

TELLING_SECONDS = 5.0  # an estimate from which a run says how good estimates are


@dataclass(kw_only=True, slots=True, eq=False)
class Entry:
    """One run on the board."""

    run: PlannedRun
    estimate: float | None = None  # seconds
    state: State = "waiting"
    text: str = ""  # the latest metric, or the error
    has_begun: bool = False  # its data is open
    first_update: int = 0  # where it went on
    update: int = 0
    max_updates: int = 0
    began: float = 0.0
    seconds: float = 0.0  # once finished
    deaths: int = 0  # workers that died of it, or with it
    deaths_in_vain: int = 0  # of them, since its checkpoints last got on
    tries: int = 0  # at a folder that others hold
    not_before: float = 0.0

    @property
    def share(self) -> float:
        """Return how much of its updates a running run has behind it."""
        return min(1.0, self.update / self.max_updates) if self.max_updates else 0.0


@dataclass(kw_only=True, slots=True, eq=False)
class Board:
    """All runs of a grid."""

    entries: list[Entry]
    workers: int = 1
    done_before: int = 0  # runs whose records were there already
    now: Callable[[], float] = time.monotonic
    began: float = field(default=0.0)

    @classmethod
    def of(
        cls,
        runs: Sequence[PlannedRun],
        *,
        estimates: Mapping[Path, float],
        workers: int,
        done_before: int = 0,
    ) -> "Board":
        """Put runs on a board, all waiting."""
        entries = [Entry(run=run, estimate=estimates.get(run.folder)) for run in runs]
        board = cls(entries=entries, workers=workers, done_before=done_before)
        board.began = board.now()
        return board

    def count(self, state: State) -> int:
        """Count the runs in a state."""
        return sum(entry.state == state for entry in self.entries)

    def in_state(self, state: State) -> list[Entry]:
        """List the runs in a state."""
        return [entry for entry in self.entries if entry.state == state]

    def seconds_left(self) -> float | None:
        """Estimate the time to the end; None while nothing at all is known.

        Estimates are corrected by how the finished runs of this grid compare with theirs. Those of short runs
        tell nothing: opening data and testing, which no estimate counts, is most of them.
        """
        finished = self.in_state("finished")
        known = [
            (entry.seconds, entry.estimate)
            for entry in finished
            if entry.estimate is not None and entry.estimate >= TELLING_SECONDS
        ]
        correction = sum(took for took, _ in known) / sum(guess for _, guess in known) if known else 1.0
        guesses = [entry.estimate * correction for entry in self.entries if entry.estimate is not None]
        guesses += [entry.seconds for entry in finished if entry.estimate is None]
        usual = sum(guesses) / len(guesses) if guesses else None
        left = [self._left(entry, correction, usual) for entry in self.in_state("running")]
        left += [self._guess(entry, correction, usual) for entry in self.in_state("waiting")]
        if any(seconds is None for seconds in left):
            return None
        seconds = [part for part in left if part is not None]
        return max([sum(seconds) / max(1, self.workers), *seconds]) if seconds else 0.0

    def _guess(self, entry: Entry, correction: float, usual: float | None) -> float | None:
        return usual if entry.estimate is None else entry.estimate * correction

    def _left(self, entry: Entry, correction: float, usual: float | None) -> float | None:
        spent = self.now() - entry.began
        made = entry.update - entry.first_update
        if made > 0.05 * entry.max_updates:  # its own pace says more than others' times
            return spent * (entry.max_updates - entry.update) / made
        guess = self._guess(entry, correction, usual)
        return None if guess is None else max(0.0, guess - spent)

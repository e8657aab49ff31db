"""Which episode is to be rolled out next, until every behaviour has its share of transitions.

How long an episode will be is not known before, so those under way count with the mean length so far. Several
threads may ask; one that asks too early waits. Knows nothing of environments, processes or files.
"""

import threading
from collections.abc import Mapping

from aaren.data.rl.episode_shards import EpisodeKey

_GUESS_STEPS = 1000.0  # length of an episode before any has been seen


class RolloutSchedule:
    """Hands out the episodes 0, 1, 2, ... of each behaviour until their lengths add up to its share.

    >>> schedule = RolloutSchedule([5, 5], {EpisodeKey(0, 0): 7})
    >>> schedule.next(), schedule.transitions
    (EpisodeKey(part=1, number=0), 5)
    """

    def __init__(self, shares: list[int], finished: Mapping[EpisodeKey, int]) -> None:
        self._shares = shares
        self._steps: list[dict[int, int]] = [{} for _ in shares]
        self._under_way: list[set[int]] = [set() for _ in shares]
        self._is_stopped = False
        self._changed = threading.Condition()
        for key, steps in finished.items():
            self._steps[key.part][key.number] = steps

    @property
    def transitions(self) -> int:
        """Transitions so far that count towards the shares."""
        with self._changed:
            return sum(
                min(sum(steps.values()), share)
                for steps, share in zip(self._steps, self._shares, strict=True)
            )

    def next(self) -> EpisodeKey | None:
        """Give the next episode to run; None when there is nothing more to do."""
        with self._changed:
            while not self._is_stopped:
                for part, share in enumerate(self._shares):
                    if self._expected(part) < share:
                        return self._hand_out(part)
                if not any(self._under_way):
                    break
                self._changed.wait()
        return None

    def finish(self, key: EpisodeKey, steps: int) -> None:
        """Note that an episode is done."""
        with self._changed:
            self._under_way[key.part].discard(key.number)
            self._steps[key.part][key.number] = steps
            self._changed.notify_all()

    def stop(self) -> None:
        """Hand out nothing more; whoever waits goes home."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _expected(self, part: int) -> float:
        steps, under_way = self._steps[part], self._under_way[part]
        mean = sum(steps.values()) / len(steps) if steps else _GUESS_STEPS
        return sum(steps.values()) + mean * len(under_way)

    def _hand_out(self, part: int) -> EpisodeKey:
        number = 0
        while number in self._steps[part] or number in self._under_way[part]:
            number += 1
        self._under_way[part].add(number)
        return EpisodeKey(part, number)

import random
import threading
import time

from aaren.rl.rollouts import EpisodeKey, RolloutSchedule


def serve(schedule: RolloutSchedule, lengths: dict[int, int]) -> list[EpisodeKey]:
    done = []
    while (key := schedule.next()) is not None:
        schedule.finish(key, lengths[key.part])
        done.append(key)
    return done


def test_episodes_come_in_order_until_each_share_is_full() -> None:
    done = serve(RolloutSchedule([10, 5], {}), {0: 4, 1: 5})
    assert done == [EpisodeKey(0, 0), EpisodeKey(0, 1), EpisodeKey(0, 2), EpisodeKey(1, 0)]


def test_finished_episodes_are_not_run_again_and_holes_are_filled() -> None:
    schedule = RolloutSchedule([20], {EpisodeKey(0, 0): 4, EpisodeKey(0, 2): 4})
    assert schedule.transitions == 8
    assert serve(schedule, {0: 4}) == [EpisodeKey(0, 1), EpisodeKey(0, 3), EpisodeKey(0, 4)]
    assert schedule.transitions == 20


def test_nothing_to_do_is_said_at_once() -> None:
    assert RolloutSchedule([3], {EpisodeKey(0, 0): 3}).next() is None


def test_a_stopped_schedule_sends_everybody_home() -> None:
    schedule = RolloutSchedule([1000], {})
    assert schedule.next() == EpisodeKey(0, 0)  # under way: the share looks full, so the next one waits
    waiting = threading.Thread(target=schedule.next)
    waiting.start()
    schedule.stop()
    waiting.join(timeout=5)
    assert not waiting.is_alive()


def test_many_threads_fill_every_share_without_a_hole() -> None:
    schedule = RolloutSchedule([500, 300, 700], {})
    steps: dict[EpisodeKey, int] = {}

    def work() -> None:
        while (key := schedule.next()) is not None:
            length = random.Random(f"{key}").randrange(1, 60)
            time.sleep(length * 1e-5)
            steps[key] = length
            schedule.finish(key, length)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for part, share in enumerate([500, 300, 700]):
        numbers = sorted(key.number for key in steps if key.part == part)
        assert numbers == list(range(len(numbers)))
        assert sum(steps[EpisodeKey(part, number)] for number in numbers) >= share

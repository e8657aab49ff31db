"""The toy task in trouble: a run hangs, dies, is preempted or keeps a semaphore, as its dataset is called."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator

from torch import Tensor, nn

from aaren.engine.config import EngineConfig
from aaren.engine.setting import CellGroup
from support.toy_task import ToyBatch, ToyConfig, ToyExperiment, ToySetting


class TroubledExperiment(ToyExperiment):
    updates = 0  # by this process
    semaphore = None

    def batches(self, epoch: int) -> Iterator[ToyBatch]:
        for number, batch in enumerate(super().batches(epoch)):
            while self.config.dataset == "hang" and number == 3:
                time.sleep(60.0)  # no signal that Python handles ends this
            yield batch

    def loss(self, model: nn.Module, batch: ToyBatch) -> Tensor:
        self.updates += 1
        if self.config.dataset == "semaphore" and TroubledExperiment.semaphore is None:
            TroubledExperiment.semaphore = multiprocessing.get_context("forkserver").Semaphore()
            print(TroubledExperiment.semaphore._semlock.name, flush=True)
        is_fourth = self.updates == 4
        if self.config.dataset == "die" or (self.config.dataset == "preempted" and is_fourth):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(model, batch)


class TroubledSetting(ToySetting):
    name = "support.toy_trouble"

    def make_experiment(self, config: ToyConfig, *, seed: int) -> ToyExperiment:
        return TroubledExperiment(config, seed=seed)

    def engine(self, profile: str) -> EngineConfig:
        del profile
        return EngineConfig(threads=1, checkpoint_seconds=0.0)

    def grid(self, profile: str) -> tuple[CellGroup, ...]:
        del profile
        return (CellGroup(datasets=("line", "hang"), models=("aaren",)),)


SETTING = TroubledSetting()

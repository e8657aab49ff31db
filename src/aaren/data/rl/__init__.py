"""Trajectories for offline reinforcement learning: read, rolled out from policies, cut into windows."""

from aaren.data.rl.loading import load, measure

__all__ = ["load", "measure"]

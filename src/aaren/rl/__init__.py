"""Trajectories for offline reinforcement learning: read, rolled out from policies, cut into windows."""

from aaren.rl.data import load, measure

__all__ = ["load", "measure"]

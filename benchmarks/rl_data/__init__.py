"""Stand-ins for D4RL's sets, rolled out from public policies: `python benchmarks/rl_data NAME`."""

"""Trains one network: configs, the loop, checkpoints, jobs and records."""

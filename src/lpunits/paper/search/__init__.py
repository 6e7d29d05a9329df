"""Runs many trials: spaces, studies, and the engines that carry them out."""

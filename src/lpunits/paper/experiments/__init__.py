"""One file per figure or table of the paper."""

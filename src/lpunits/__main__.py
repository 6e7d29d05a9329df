"""``python -m lpunits`` is the command line."""

from lpunits.cli import main

main()

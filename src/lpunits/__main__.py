"""``python -m lpunits`` is the command line."""

from lpunits.paper.cli import main

main()

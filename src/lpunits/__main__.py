"""``python -m lpunits`` is the command ``lpunits``."""

from lpunits_cli import main

main()

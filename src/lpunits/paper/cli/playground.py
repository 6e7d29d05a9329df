"""The command ``lpunits playground``."""

import webbrowser
from typing import Annotated

from cyclopts import Parameter


def playground(*, open_: Annotated[bool, Parameter(name="--open")] = True) -> None:
    """Open the playground in the browser: a unit to shape by hand, and networks that learn.

    Args:
        open_: Open the browser; with --no-open the address is printed alone.
    """
    from lpunits.paper.playground import server

    with server() as serving:
        address = f"http://127.0.0.1:{serving.server_port}/"
        print(f"playground: {address} (Ctrl-C ends it)", flush=True)
        if open_:
            webbrowser.open(address)
        serving.serve_forever()

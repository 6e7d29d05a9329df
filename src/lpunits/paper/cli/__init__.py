"""The commands of ``lpunits``: they parse arguments, call the other packages and print the results.

``lpunits_cli.py``, beside the package, lists them.
"""

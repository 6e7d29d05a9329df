"""The pooling layers as parts of other libraries: a file per library, which imports it.

``pip install lpunits[pyg]``, ``lpunits[sentence-transformers]`` or ``lpunits[timm]``.
"""

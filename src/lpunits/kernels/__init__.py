"""Forward and backward of the normalised Lp norm, one file per target, the same two signatures.

``forward(z, p, center, dim)`` returns the pooled values, and
``backward(grad, z, p, center, dim, needs)`` the gradients in z, p and center; ``needs`` says which
of the three are wanted, the others are None. Here ``p`` is a tensor that broadcasts against z, with
size 1 along ``dim``.
"""

"""Pure functions on tensors: the papers' equations, one concept a file."""

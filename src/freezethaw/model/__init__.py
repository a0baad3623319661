"""The hierarchical Gaussian process over learning curves: pure functions of arrays, immutable values."""

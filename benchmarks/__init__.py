"""Who is better and how fast: solver comparison, published tables, micro-benchmarks."""

"""The paper's figures and tables, each from data by one command.

See benchmarks/results/experiments.md.
"""

"""The paper's figures and tables, each from data by one command; see docs/experiments.md."""

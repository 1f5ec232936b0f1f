"""Runs of estimators on sets of posed pairs, and statistics and tables of them."""

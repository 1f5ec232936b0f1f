"""The ``manymatch-paper`` command."""

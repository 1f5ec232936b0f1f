"""Arbitrary bytes for every reader and every public function; load for hours."""

"""Many-to-many robust relative pose."""

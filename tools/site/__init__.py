"""What the documentation is made with: generated pages, figures, and the gallery."""

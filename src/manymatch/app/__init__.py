"""The app: a page on this machine that matches two photographs, or all of a folder."""

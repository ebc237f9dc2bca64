"""Reports as one self-contained HTML file: opens offline, in light and dark, and prints."""

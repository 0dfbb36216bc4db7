"""The report's figures as PNG and SVG files."""

"""Figures drawn with matplotlib, as PNG and SVG files."""

"""Where a model stands between models that are known well [Xiao 2025]."""

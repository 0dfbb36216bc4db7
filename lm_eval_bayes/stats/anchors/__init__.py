"""The position of a model among anchor models of known ability [Xiao 2025]."""

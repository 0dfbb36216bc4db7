"""How the package registers with the harness, and the objects that it registers."""

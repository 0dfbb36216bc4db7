"""Pass@k, Pass^k, G-Pass@k, mG-Pass@k: estimators and posteriors."""

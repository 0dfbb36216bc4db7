"""Files for others to read: the hub's eval results, Every Eval Ever, and tables."""

"""Small tools that every room may use: hashes, time-outs of servers."""

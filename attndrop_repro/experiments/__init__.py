"""Suites: what they need, what of it is missing, and the engines that do it."""

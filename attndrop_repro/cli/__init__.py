"""The command line: one file a subcommand; no logic, and no torch before a command runs."""

from attndrop_repro.cli.entry import main

__all__ = ["main"]

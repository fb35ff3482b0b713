"""The report: reads the results store only, imports no torch, writes the same bytes every time."""

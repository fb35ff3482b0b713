"""Figures: one file each. Drawn without pyplot, so that nothing global is touched."""

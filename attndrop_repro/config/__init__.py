"""Recipes and suites: schema, loading, overriding, hashing; and the errors users see."""

"""What the papers prove and where they are wrong: the bound, the errata, the numbers they claim."""

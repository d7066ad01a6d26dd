"""The pipeline jobs of the package."""

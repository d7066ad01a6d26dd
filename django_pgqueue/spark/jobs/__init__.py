"""The pipeline jobs of the package, a file each."""

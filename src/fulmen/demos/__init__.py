"""Small modules, data sets and data modules for tests and bug reports."""

"""Every hook described once, and the table of those that are really overridden."""

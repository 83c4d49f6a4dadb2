"""The `fulmen` command: a table of sub-commands, each imported when it is called."""

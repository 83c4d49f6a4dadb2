"""From a Trainer's arguments to a frozen `Plan` and the objects that run it."""

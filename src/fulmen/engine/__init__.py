"""Engine rooms: how a run works inside. Only paths outside `fulmen.engine` are promised to stay."""

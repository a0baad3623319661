"""Which run to start, freeze or thaw: pure functions; a random generator is an argument."""

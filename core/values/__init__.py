"""How people write values in a configuration, and whether these mean something."""

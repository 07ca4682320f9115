"""From a model handle to the provider that answers: settings, listings, fallbacks."""

"""Language models: providers, their wire formats, limits and routing. Knows neither agents nor the database."""

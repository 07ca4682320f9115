"""OpenAI's API with agents as models: chat completions, responses, embeddings and the list of models."""

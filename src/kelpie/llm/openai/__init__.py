"""OpenAI's wire formats: chat completions, responses, embeddings, and Azure."""

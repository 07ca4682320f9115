"""Servers of local models: Ollama, LM Studio, vLLM, llama.cpp, LocalAI."""

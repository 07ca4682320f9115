"""What an agent remembers in its prompt: blocks, the ways to edit their text, and how the model is shown them."""

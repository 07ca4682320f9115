"""Files that agents read: folders, uploads, processing in the background, and the tools that look into them."""

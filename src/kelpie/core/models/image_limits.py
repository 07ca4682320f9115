"""Limits on images that clients may send to an agent: formats, sizes and numbers that every provider accepts."""

MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
IMAGES_MAX = 20  # in one message
IMAGE_BYTES_MAX = 5 * 1024 * 1024
TOKENS_PER_IMAGE = 1_500  # roughly; providers count by the size of the picture

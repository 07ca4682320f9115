"""Which images may be sent to an agent: kinds, sizes and numbers that every provider takes."""

MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
IMAGES_MAX = 20  # in one message
IMAGE_BYTES_MAX = 5 * 1024 * 1024
TOKENS_PER_IMAGE = 1_500  # roughly; providers count by the size of the picture

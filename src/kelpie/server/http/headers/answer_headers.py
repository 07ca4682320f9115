"""Names of the headers that Kelpie adds to answers. Web pages of other origins may read all of them."""

REQUEST_ID_HEADER = "X-Request-Id"
MODE_HEADER = "X-Kelpie-Search-Mode"
NOTE_HEADER = "X-Kelpie-Search-Note"
IGNORED_HEADER = "X-Kelpie-Ignored-Fields"  # fields of the body that Kelpie does not know
FAILED_HEADER = "X-Kelpie-Failed-Providers"  # providers whose models are missing from a list

ANSWER_HEADERS = (REQUEST_ID_HEADER, MODE_HEADER, NOTE_HEADER, IGNORED_HEADER, FAILED_HEADER)

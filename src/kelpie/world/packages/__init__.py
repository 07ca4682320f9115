"""Packages that tools require: sets on disk and the installers that fill them."""

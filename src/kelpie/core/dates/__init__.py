"""Dates as people and models write them: fields, words, and mentions in a question."""

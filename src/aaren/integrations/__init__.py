"""Streams of a model inside other engines: a pure step over bytes, Spark Structured Streaming."""

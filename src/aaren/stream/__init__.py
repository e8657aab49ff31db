"""What turns a model into a stream: sessions, and models on disk."""

"""What turns a model into a stream: sessions that hold states, and models saved to a folder."""

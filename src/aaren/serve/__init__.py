"""`aaren serve`: keyed streams of a trained run over HTTP; answers are sent once they are committed."""

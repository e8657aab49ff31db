"""`aaren demo`: the library in five minutes, everything that it shows learned or measured on this machine."""

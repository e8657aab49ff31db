"""`aaren check`: is what is installed here right, on this device, and how fast?"""

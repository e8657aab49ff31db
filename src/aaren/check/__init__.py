"""`aaren check`: is this installation correct on this device, and how fast?"""

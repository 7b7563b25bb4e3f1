"""Programs that are sent to nodes and run there: standard library only, Python 3.8 and newer, Linux."""

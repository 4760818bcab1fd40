"""Runs seeds of the simulation, also with planted bugs and with several masters."""

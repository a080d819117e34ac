"""Compares the keys in trainers' newest sources with the tables of signals."""

"""Peers on servers, and stores under frameworks: measured by `make bench` only, and in no wheel."""

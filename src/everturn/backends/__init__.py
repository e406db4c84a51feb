"""The backends that come with everturn, one package or module each. Each is imported when its URL is opened."""

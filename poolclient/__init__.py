"""How a pool of remote cards is asked. Nothing is opened at import."""

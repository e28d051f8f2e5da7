"""The one error of these programs: a sentence for the person at the terminal, saying what to do next."""


class ClusterError(Exception):
    """Something that the person who runs the command has to know; the text is the whole message."""

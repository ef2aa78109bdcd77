"""A digest of every answer that the command `xsp` gives, to show that a change that moves code changes no answer."""

__all__: list[str] = []

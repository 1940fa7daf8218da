"""Launch commands as people write them → `LaunchCommand`."""

from tuner.spec.command.importer import import_command
from tuner.spec.command.model import FlagText, LaunchCommand

__all__ = ["FlagText", "LaunchCommand", "import_command"]

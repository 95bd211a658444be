"""Version of the package."""

from importlib import metadata


def _installed_version() -> str:
    """Returns the version of the installed package; of a checkout, which is not installed, ``0+source``."""
    try:
        return metadata.version("maverl")
    except metadata.PackageNotFoundError:
        return "0+source"


__version__: str = _installed_version()

"""Opening the control database, brought to its newest schema. How connections are set up is `records.database`'s."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine

from records import database

_MIGRATIONS = Path(__file__).parent / "migrations"


def database_url(where: str) -> str:
    """The URL of `where`: a URL stays as it is, anything else is the path of a SQLite file."""
    return where if "://" in where else f"sqlite:///{Path(where).absolute()}"


def open_engine(where: str) -> Engine:
    """An engine on `where` (path or URL), migrated. Raises DatabaseUrlError, StoreUnavailableError."""
    engine = database.open_engine(database_url(where))
    upgrade(engine)
    return engine


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring the schema up to `revision`."""
    with database.writing(engine) as connection:
        command.upgrade(_config(connection), revision)


def downgrade(engine: Engine, revision: str = "base") -> None:
    """Take the schema back to `revision`; data of later revisions is lost."""
    with database.writing(engine) as connection:
        command.downgrade(_config(connection), revision)


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config

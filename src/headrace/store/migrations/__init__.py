"""Creates the tables of a database, or migrates them to this version with Alembic.

A change of the tables adds a revision, which nobody changes once it is released, and sets
``HEAD`` to it.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    insert,
    inspect,
    select,
)

from headrace.sdk.errors import SetupError
from headrace.store.connections import Mode, in_mode
from headrace.store.tables import metadata

HEAD = "0010"
"""The newest revision; a constant, because asking Alembic takes longer than a query."""

_FOLDER = Path(__file__).parent
_revisions = Table(
    "alembic_version", MetaData(), Column("version_num", String(32), primary_key=True)
)


def migrate(engine: Engine) -> None:
    """Create the tables, or migrate them to the newest revision, if necessary.

    Raises:
        SetupError: A version of Headrace that this one does not know has made the tables.
    """
    with engine.connect() as db:
        if _found(db) == HEAD:
            return
    # If several processes open a new database at once, one migrates it and the others wait.
    with in_mode(engine, Mode.ALONE).begin() as db:
        found = _found(db)
        if found is None:
            ours = {_revisions.name, *metadata.tables}
            if ours & set(inspect(db).get_table_names()):
                raise _of_another_version(None)
            metadata.create_all(db)
            _revisions.create(db)
            db.execute(insert(_revisions).values(version_num=HEAD))
        elif found != HEAD:
            _upgrade(db, found)


def _found(db: Connection) -> str | None:
    if not inspect(db).has_table(_revisions.name):
        return None
    return db.execute(select(_revisions.c.version_num)).scalar()


def _upgrade(db: Connection, found: str) -> None:
    # The import takes a third of a second, and most starts need no migration.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config(attributes={"connection": db})
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    try:
        ScriptDirectory.from_config(config).get_revision(found)
    except CommandError as error:
        raise _of_another_version(found) from error
    command.upgrade(config, HEAD)


def _of_another_version(revision: str | None) -> SetupError:
    problem = f"Another version of Headrace has made this store (revision {revision})."
    return SetupError(problem, fix="Use that version, or another store.")

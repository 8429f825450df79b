"""Migrates the tables of a database to this version, with Alembic.

Never change a released revision: add a new one, and set ``HEAD`` to it.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, inspect, select

from headrace.sdk.errors import SetupError
from headrace.store.connections import Mode, in_mode

HEAD = "0010"
"""The newest revision; a constant, because asking Alembic takes longer than a query."""

_FOLDER = Path(__file__).parent
_revisions = Table("alembic_version", MetaData(), Column("version_num", String))


def migrate(engine: Engine) -> None:
    """Migrate a database to the newest revision, if necessary.

    Raises:
        SetupError: A newer version of Headrace has migrated the tables.
    """
    with engine.connect() as db:
        if _found(db) == HEAD:
            return
    # If several processes open a new database at once, one migrates it and the others wait.
    with in_mode(engine, Mode.ALONE).begin() as db:
        if _found(db) != HEAD:
            _upgrade(db)


def _found(db: Connection) -> str | None:
    if not inspect(db).has_table(_revisions.name):
        return None
    return db.execute(select(_revisions.c.version_num)).scalar()


def _upgrade(db: Connection) -> None:
    # The import takes a third of a second, and most starts need no migration.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config(attributes={"connection": db})
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    found = _found(db)
    try:
        if found is not None:
            ScriptDirectory.from_config(config).get_revision(found)
    except CommandError as error:
        problem = f"A newer Headrace has migrated this store (revision {found})."
        raise SetupError(problem, fix="Use that version, or another store.") from error
    if found is None and inspect(db).has_table("connectors"):
        command.stamp(config, "0001")  # created before revisions were introduced
    command.upgrade(config, HEAD)
